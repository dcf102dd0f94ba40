/*
 * Properties: a cut list of processors never grows, and cutting it again changes nothing; no other
 * text is read past its end.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/procview.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1), *cut = malloc(size + 1);
    struct procview_process process;
    struct procview_memory memory = {0};
    if (!text || !cut)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    if (procview_process_read(text, &process))
        assert(process.state);
    procview_memory_read(text, &memory);
    for (unsigned cpus = 1; cpus < 4; cpus++) {
        memcpy(cut, data, size);
        size_t n = procview_cpuinfo(cut, size, cpus);
        assert(n <= size);
        memcpy(text, cut, n);
        assert(procview_cpuinfo(cut, n, cpus) == n && memcmp(cut, text, n) == 0);
    }
    free(text);
    free(cut);
    return 0;
}
