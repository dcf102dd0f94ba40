/* Plain recursion: what a call and a return cost. */
#include "kernel.h"

static NOINLINE uint32_t fib(uint32_t n) {
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

KERNEL uint32_t run(uint32_t n) {
    return fib(n);
}
