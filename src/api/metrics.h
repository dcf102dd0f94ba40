/*
 * What is counted: one histogram a route, failures by code, and gauges that are read when asked.
 * Written in the text format of Prometheus.
 */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct metrics;
struct route;

struct metrics *metrics_new(void);
void metrics_free(struct metrics *m);

/* A call of this route was answered; failed: 0 or its error code. */
void metrics_count(struct metrics *m, const struct route *route, int status, enum err_code failed,
                   uint64_t us);

/* Appends histograms and failures. */
void metrics_write(const struct metrics *m, struct buf *out);

/* One line each, for gauges: name{label="value"} number. label NULL: none. */
void metrics_head(struct buf *out, const char *name, const char *type, const char *help);
void metrics_line(struct buf *out, const char *name, const char *label, const char *value,
                  uint64_t number);
