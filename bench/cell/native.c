/* The kernel as a native program: native N prints its result and CPU time, as cell.c does. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "kernels/kernel.h"

static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 64;
    uint32_t n = (uint32_t)strtoul(argv[1], NULL, 10);
    run(1);
    double start = cpu_ms();
    uint32_t result = run(n);
    printf("%u %.4f\n", result, cpu_ms() - start);
}
