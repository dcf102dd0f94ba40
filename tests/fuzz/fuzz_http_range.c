/* Property: a range that is taken lies within the file and is not empty; digits are read as such.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "io/http_range.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const uint64_t sizes[] = {0, 1, 10, 4096, INT64_MAX};
    struct http_range r = http_range_parse((struct http_text){(const char *)data, size});
    assert(!r.given || (size >= 8 && memchr(data, '-', size)));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        uint64_t first, end;
        bool any = http_range_of(&r, sizes[i], &first, &end);
        assert(any || r.given);
        assert(!any || (first <= end && end <= sizes[i] && (!r.given || first < end)));
    }
    return 0;
}
