/*
 * The clocks in milliseconds. A duration or a deadline within one process uses monotonic_ms(). A
 * deadline that counts while the host sleeps uses boot_ms(). A time that people read or that
 * outlives a restart of the host uses wall_ms(), which can jump.
 */
#pragma once

#include <stdint.h>
#include <time.h>

/* Milliseconds since 1970. */
static inline int64_t wall_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Milliseconds since the host started, including sleep. Nobody can set this clock, so lifetimes of
 * machines use it. */
static inline uint64_t boot_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static inline uint64_t monotonic_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static inline uint64_t monotonic_ms(void) {
    return monotonic_us() / 1000;
}
