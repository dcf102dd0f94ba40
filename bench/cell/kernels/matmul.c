/* Square matrices of doubles, the textbook loop. */
#include "kernel.h"

enum { SIDE = 96 };

static double a[SIDE][SIDE], b[SIDE][SIDE], c[SIDE][SIDE];

static NOINLINE void multiply(void) {
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            double sum = 0;
            for (int k = 0; k < SIDE; k++)
                sum += a[i][k] * b[k][j];
            c[i][j] = sum;
        }
}

KERNEL uint32_t run(uint32_t n) {
    uint32_t seed = 7;
    for (int i = 0; i < SIDE * SIDE; i++) {
        (&a[0][0])[i] = (double)(next_random(&seed) & 1023) / 512;
        (&b[0][0])[i] = (double)(next_random(&seed) & 1023) / 512;
    }
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        multiply();
        a[i % SIDE][0] += 0.25;
        sum = mix(sum, (uint32_t)c[i % SIDE][i % SIDE]);
    }
    return sum;
}
