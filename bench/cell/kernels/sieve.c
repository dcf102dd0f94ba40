/* The sieve of Eratosthenes: byte stores at a stride, short loops. */
#include "kernel.h"

enum { SIZE = 1 << 18 };

static uint8_t composite[SIZE];

static NOINLINE uint32_t count_primes(void) {
    __builtin_memset(composite, 0, sizeof composite);
    uint32_t count = 0;
    for (uint32_t i = 2; i < SIZE; i++) {
        if (composite[i])
            continue;
        count++;
        for (uint32_t j = 2 * i; j < SIZE; j += i)
            composite[j] = 1;
    }
    return count;
}

KERNEL uint32_t run(uint32_t n) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum = mix(sum, count_primes());
    return sum;
}
