/* Property: unpacking moves on or says why not, whatever the bytes; codings are found as bytes say.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "io/http_coding.h"
#include "io/zstream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t out[4096];
    struct zunpack *z = zunpack_new();
    struct err err = {0};
    size_t at = 0, used = 0, n = 0, turns = 0;
    int r = 0;
    while (r == 0 && turns++ < 10000) {
        size_t piece = size - at < 7 ? size - at : 7;
        r = zunpack_go(z, data + at, piece, out, sizeof(out), &used, &n, &err);
        if (r < 0 || (!used && !n))
            break;
        assert(used <= piece && n <= sizeof(out));
        at += used;
    }
    assert(r == 0 || err.code == ERR_INVALID || err.code == ERR_LIMIT);
    zunpack_free(z);
    if (http_coding_wanted((struct http_text){(const char *)data, size}, "zstd"))
        assert(size >= 4);
    return 0;
}
