/*
 * One kernel is one function of one number, the same C for the native build
 * and the WebAssembly build. It needs no libc: memcpy and memset are what the
 * compiler makes of the builtins (memory.copy and memory.fill in a module).
 * The result is a checksum, so that every engine can be held to it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifndef KERNEL_NAME
#define KERNEL_NAME "run"
#endif

#if !defined(__wasm__)
#define KERNEL
#elif !defined(KERNEL_N)
#define KERNEL __attribute__((export_name(KERNEL_NAME)))
#else
/* For an interpreter that cannot pass arguments on its command line. */
#define KERNEL                                                   \
    __attribute__((export_name("run_n"))) uint32_t run_n(void) { \
        return run(KERNEL_N);                                    \
    }
#endif

#define NOINLINE __attribute__((noinline))

uint32_t run(uint32_t n);
uint32_t run_n(void);

/* The same pseudo-random numbers everywhere. */
static inline uint32_t next_random(uint32_t *state) {
    uint32_t x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

static inline uint32_t mix(uint32_t sum, uint32_t x) {
    return (sum ^ x) * 16777619u;
}
