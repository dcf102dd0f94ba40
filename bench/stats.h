/*
 * Samples of one measure, in nanoseconds (or any other unit), and their quantiles.
 *
 * Benchmarks only: running out of memory aborts.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct samples {
    uint64_t *v;
    size_t n, cap;
};

void samples_add(struct samples *s, uint64_t value);
void samples_done(struct samples *s);

/* The value below which so many thousandths lie: 500 is the median. 0 when there is none. Sorts. */
uint64_t samples_quantile(struct samples *s, unsigned per_mille);

/* The monotonic clock. */
uint64_t now_ns(void);
