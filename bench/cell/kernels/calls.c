/* Many small direct calls with several arguments (Takeuchi, and a ladder of helpers). */
#include "kernel.h"

static NOINLINE int tak(int x, int y, int z) {
    if (y >= x)
        return z;
    return tak(tak(x - 1, y, z), tak(y - 1, z, x), tak(z - 1, x, y));
}

static NOINLINE uint32_t leaf(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    return (a ^ b) + (c & d);
}

static NOINLINE uint32_t middle(uint32_t a, uint32_t b) {
    return leaf(a, b, a + 1, b + 1) + leaf(b, a, 3, a);
}

static NOINLINE uint32_t top(uint32_t a) {
    return middle(a, a >> 1) ^ middle(a + 7, a * 3);
}

KERNEL uint32_t run(uint32_t n) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum = mix(sum, (uint32_t)tak(10 + (int)(i & 1), 6, 2));
        for (uint32_t k = 0; k < 200; k++)
            sum += top(sum + k);
    }
    return sum;
}
