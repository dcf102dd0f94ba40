/* Calls through a table of functions, chosen by data. */
#include "kernel.h"

typedef uint32_t step_fn(uint32_t x, uint32_t i);

static NOINLINE uint32_t step_add(uint32_t x, uint32_t i) {
    return x + i;
}
static NOINLINE uint32_t step_xor(uint32_t x, uint32_t i) {
    return x ^ (i * 2654435761u);
}
static NOINLINE uint32_t step_rotate(uint32_t x, uint32_t i) {
    return (x << 7 | x >> 25) + (i & 15);
}
static NOINLINE uint32_t step_multiply(uint32_t x, uint32_t i) {
    return x * 5 + i;
}
static NOINLINE uint32_t step_shift(uint32_t x, uint32_t i) {
    return x ^ (x >> (i & 7));
}
static NOINLINE uint32_t step_subtract(uint32_t x, uint32_t i) {
    return x - 3 * i;
}
static NOINLINE uint32_t step_not(uint32_t x, uint32_t i) {
    return ~x + i;
}
static NOINLINE uint32_t step_swap(uint32_t x, uint32_t i) {
    return (x >> 16 | x << 16) ^ i;
}

step_fn *volatile steps[8] = {step_add,   step_xor,      step_rotate, step_multiply,
                              step_shift, step_subtract, step_not,    step_swap};

KERNEL uint32_t run(uint32_t n) {
    uint32_t x = 1;
    for (uint32_t i = 0; i < n * 1000; i++)
        x = steps[(x ^ i) & 7](x, i);
    return x;
}
