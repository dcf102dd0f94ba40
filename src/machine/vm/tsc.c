#include "machine/vm/tsc.h"

#include <time.h>

#ifdef __x86_64__
#include <x86intrin.h>

static uint64_t tsc_read(void) {
    return __rdtsc();
}
#else
static uint64_t tsc_read(void) {
    return 0;
}
#endif

enum { TSC_SAMPLES = 16, TSC_WAIT_NS = 10000000 };

struct sample {
    uint64_t ticks;
    int64_t ns;
};

/* Reads both clocks at nearly the same time: the closest of several pairs, because the thread may
 * be interrupted in between. */
static struct sample tsc_sample(void) {
    struct sample best = {0};
    uint64_t best_span = UINT64_MAX;
    for (int i = 0; i < TSC_SAMPLES; i++) {
        struct timespec t;
        uint64_t before = tsc_read();
        clock_gettime(CLOCK_MONOTONIC_RAW, &t);
        uint64_t span = tsc_read() - before;
        if (span < best_span) {
            best = (struct sample){before + span / 2, (int64_t)t.tv_sec * 1000000000 + t.tv_nsec};
            best_span = span;
        }
    }
    return best;
}

uint32_t tsc_khz(void) {
    struct sample start = tsc_sample();
    struct timespec wait = {0, TSC_WAIT_NS};
    nanosleep(&wait, NULL);
    struct sample end = tsc_sample();
    return (uint32_t)((end.ticks - start.ticks) * 1000000 / (uint64_t)(end.ns - start.ns));
}
