/* Quicksort with an insertion sort at the leaves: unpredictable branches. */
#include "kernel.h"

enum { COUNT = 1 << 14 };

static uint32_t values[COUNT];

static void insertion_sort(uint32_t *v, int n) {
    for (int i = 1; i < n; i++) {
        uint32_t x = v[i];
        int j = i;
        for (; j > 0 && v[j - 1] > x; j--)
            v[j] = v[j - 1];
        v[j] = x;
    }
}

static NOINLINE void quicksort(uint32_t *v, int n) {
    while (n > 12) {
        uint32_t pivot = v[n / 2];
        int i = 0, j = n - 1;
        while (i <= j) {
            while (v[i] < pivot)
                i++;
            while (v[j] > pivot)
                j--;
            if (i <= j) {
                uint32_t x = v[i];
                v[i++] = v[j];
                v[j--] = x;
            }
        }
        quicksort(v, j + 1);
        v += i;
        n -= i;
    }
    insertion_sort(v, n);
}

KERNEL uint32_t run(uint32_t n) {
    uint32_t seed = 5, sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        for (int k = 0; k < COUNT; k++)
            values[k] = next_random(&seed);
        quicksort(values, COUNT);
        sum = mix(sum, values[i % COUNT]);
    }
    return sum;
}
