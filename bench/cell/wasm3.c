/*
 * A kernel in wasm3: wasm3 FILE N prints its result and CPU time, as cell.c does.
 * run.py compiles this file together with the source of wasm3, which is not part of this tree.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "wasm3.h"

enum { STACK_BYTES = 1 << 20, FILE_MAX = 16 << 20 };

static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void need(M3Result result) {
    if (!result)
        return;
    fprintf(stderr, "wasm3: %s\n", result);
    exit(1);
}

static uint32_t call(IM3Function run, uint32_t n) {
    uint32_t value;
    need(m3_CallV(run, n));
    need(m3_GetResultsV(run, &value));
    return value;
}

int main(int argc, char **argv) {
    FILE *f = argc == 3 ? fopen(argv[1], "rb") : NULL;
    uint8_t *bytes = malloc(FILE_MAX);
    if (!f || !bytes)
        return 64;
    size_t size = fread(bytes, 1, FILE_MAX, f);
    IM3Environment env = m3_NewEnvironment();
    IM3Runtime runtime = m3_NewRuntime(env, STACK_BYTES, NULL);
    IM3Module module;
    IM3Function run;
    need(m3_ParseModule(env, &module, bytes, (uint32_t)size));
    need(m3_LoadModule(runtime, module));
    need(m3_FindFunction(&run, runtime, "run"));
    call(run, 1);
    double start = cpu_ms();
    uint32_t result = call(run, (uint32_t)strtoul(argv[2], NULL, 10));
    printf("%u %.4f\n", result, cpu_ms() - start);
}
