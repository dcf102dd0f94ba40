/* Metrics in the Prometheus text format: one histogram per route, failures by error code, and
 * gauges that are computed when they are read.
 */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct metrics;
struct route;

struct metrics *metrics_new(void);
void metrics_free(struct metrics *m);

/* Counts an answered call; failed: 0 or the error code. */
void metrics_count(struct metrics *m, const struct route *route, int status, enum err_code failed,
                   uint64_t us);

/* Appends histograms and failures. */
void metrics_write(const struct metrics *m, struct buf *out);

/* Write HELP and TYPE, then one line `name{label="value"} number`; label may be NULL. */
void metrics_head(struct buf *out, const char *name, const char *type, const char *help);
void metrics_line(struct buf *out, const char *name, const char *label, const char *value,
                  uint64_t number);
