/* Properties: a stack that parses prints as it was; of a mount table every path fits and is one. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/layers.h"
#include "spawn/make/mountinfo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct layers layers;
    static struct mount_line line;
    char print[LAYERS_TEXT_SIZE], *text = malloc(size + 1);
    struct err err;
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (layers_parse(text, &layers, &err) == 0) {
        assert(layers.count <= LAYERS_MAX && layers_print(&layers, print, sizeof(print)));
        assert(strcmp(print, text) == 0);
    }
    for (const char *at = text; mountinfo_next(&at, &line);)
        assert(at <= text + size && memchr(line.path, 0, sizeof(line.path)));
    free(text);
    return 0;
}
