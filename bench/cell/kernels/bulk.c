/* Large copies and fills: memory.copy and memory.fill, or memcpy and memset. */
#include "kernel.h"

enum { SIZE = 1 << 20 };

static uint8_t from[SIZE], to[SIZE + 64];

KERNEL uint32_t run(uint32_t n) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        __builtin_memset(from, (int)(i & 255), SIZE);
        __builtin_memcpy(to + (i & 63), from, SIZE);
        __builtin_memmove(to, to + 1 + (i & 31), SIZE - 64);
        sum = mix(sum, to[(i * 7919) & (SIZE - 1)]);
    }
    return sum;
}
