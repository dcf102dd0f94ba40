/* Property: a list of images below an image that parses prints as it was, without repeated ids. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/image_below.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct image_below below;
    char print[IMAGE_BELOW_SIZE];
    if (image_below_parse((const char *)data, size, &below) < 0)
        return 0;
    image_below_print(&below, print);
    assert(below.count <= IMAGE_BELOW_MAX && strlen(print) == size);
    assert(memcmp(print, data, size) == 0);
    for (size_t i = 0; i < below.count; i++)
        for (size_t k = 0; k < i; k++)
            assert(strcmp(below.ids[i], below.ids[k]) != 0);
    return 0;
}
