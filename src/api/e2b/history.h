/*
 * What sandboxes used: a sample every five seconds, for the last hour.
 *
 * A history begins when a client first asks for it, and ends ten minutes after it was last asked
 * for, so that sandboxes whose metrics nobody wants cost nothing. A paused sandbox adds no samples.
 */
#pragma once

#include "api/e2b/inner.h"
#include "io/loop.h"

struct sample {
    uint64_t at_ms, cpu_us, mem_bytes, disk_bytes;
    double used_percent; /* of all its processors, since the sample before */
};

struct histories;
/* count: 0 for a sandbox without samples. They are valid during the call, the oldest first. */
typedef void history_fn(void *arg, const struct sample *samples, size_t count,
                        const struct err *err);

struct histories *histories_new(struct loop *loop, struct service *service);
/* The questions that are open are still answered. */
void histories_free(struct histories *h);
void history_ask(struct histories *h, const struct caller *who, const struct e2b_sandbox *b,
                 history_fn *done, void *arg);

/* ---- one history: pure ---- */

struct series {
    struct sample *samples;
    size_t count;
};

/* cpu_us: in all; since_ms: when the sandbox began. The oldest sample makes room for a new one. */
void series_add(struct series *s, uint64_t since_ms, uint64_t cores, const struct sample *now);
void series_done(struct series *s);
enum { SERIES_MAX = 720 };
