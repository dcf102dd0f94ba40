/*
 * Property: a stream without its usage record is the same however it is cut, is never longer than
 * before, and is unchanged if it never says "usage". First byte: the size of the pieces.
 */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/defer.h"
#include "model/usage_strip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void strip(const char *bytes, size_t n, size_t step, struct buf *to) {
    struct usage_strip s DEFER(usage_strip_done) = {.record = BUF(USAGE_RECORD_MAX)};
    for (size_t i = 0; i < n; i += step)
        assert(usage_strip_feed(&s, bytes + i, n - i < step ? n - i : step, to));
    assert(usage_strip_end(&s, to));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct buf whole DEFER(buf_done) = BUF(4 << 20), pieces DEFER(buf_done) = BUF(4 << 20);
    if (size < 2 || size > 1 << 20)
        return 0;
    const char *bytes = (const char *)data + 1;
    size_t n = size - 1;
    strip(bytes, n, n, &whole);
    strip(bytes, n, data[0] % 32 + 1, &pieces);
    assert(whole.len == pieces.len && whole.len <= n);
    assert(whole.len == 0 || memcmp(whole.data, pieces.data, whole.len) == 0);
    if (!memmem(bytes, n, "\"usage\"", 7))
        assert(whole.len == n && (n == 0 || memcmp(whole.data, bytes, n) == 0));
    return 0;
}
