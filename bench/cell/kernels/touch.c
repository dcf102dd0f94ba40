/* For the fork measure: touch n pages of 4 KiB, then count without end. */
#include "kernel.h"

/* Volatile: nobody reads them, and a compiler that sees that leaves them out. */
static volatile uint8_t pages[16 << 20];
static volatile uint32_t counter;

KERNEL uint32_t run(uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        pages[(i * 4096) & (sizeof pages - 1)] = 1;
    for (;;)
        counter++;
}
