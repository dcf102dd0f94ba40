/*
 * A mode of the floating-point unit in which every NaN result is the positive canonical NaN, as
 * num.h wants it. On CPUs without such a mode, num.h checks each result instead.
 *
 * The mode belongs to the thread. Only interp_run() enters it, and leaves it before it returns.
 */
#pragma once

#include <stdint.h>

#if defined(__aarch64__)
#define FPMODE_CANONICAL 1

/* Returns the mode before, for fpmode_leave(). */
static inline uint64_t fpmode_enter(void) {
    const uint64_t default_nan = UINT64_C(1) << 25;
    uint64_t was;
    __asm__ volatile("mrs %0, fpcr" : "=r"(was));
    __asm__ volatile("msr fpcr, %0" : : "r"(was | default_nan));
    return was;
}

static inline void fpmode_leave(uint64_t was) {
    __asm__ volatile("msr fpcr, %0" : : "r"(was));
}
#else
#define FPMODE_CANONICAL 0

static inline uint64_t fpmode_enter(void) {
    return 0;
}

static inline void fpmode_leave(uint64_t was) {
    (void)was;
}
#endif
