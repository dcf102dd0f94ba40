/*
 * Input: a byte that says how the rest is cut, two texts with a length each, then the bytes.
 * Property: the result has the same length, holds none of the texts but where it is made of stars,
 * and is the same however the bytes were cut.
 */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/defer.h"
#include "base/text/needles.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void feed(const struct needles *n, const char *text, size_t len, size_t cut,
                 struct buf *ret) {
    struct buf carry DEFER(buf_done) = BUF(1 << 20);
    for (size_t at = 0; at < len || at == 0; at += cut) {
        size_t part = len - at < cut ? len - at : cut;
        assert(needles_feed(n, &carry, text + at, part, at + part == len, ret) >= 0);
        if (at + part == len)
            break;
    }
    assert(carry.len == 0);
}

static const uint8_t *take_text(const uint8_t *at, const uint8_t *end, struct needles *n) {
    if (at == end)
        return at;
    size_t len = *at++ & 31;
    len = len < (size_t)(end - at) ? len : (size_t)(end - at);
    if (len)
        assert(needles_add(n, (const char *)at, len));
    return at + len;
}

static bool has_star(const struct needle *t) {
    return memchr(t->s, '*', t->n) != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct needles n DEFER(needles_done) = {.count = 0};
    struct buf whole DEFER(buf_done) = BUF(1 << 20), parts DEFER(buf_done) = BUF(1 << 20);
    const uint8_t *end = data + size, *at = data + 1;
    if (size < 4)
        return 0;
    at = take_text(take_text(at, end, &n), end, &n);
    size_t len = (size_t)(end - at);
    feed(&n, (const char *)at, len, len ? len : 1, &whole);
    feed(&n, (const char *)at, len, 1 + data[0] % 17, &parts);
    assert(whole.len == len && parts.len == len);
    assert(len == 0 || memcmp(whole.data, parts.data, len) == 0);
    for (size_t i = 0; i < n.count && len; i++)
        assert(has_star(&n.list[i]) || !memmem(whole.data, len, n.list[i].s, n.list[i].n));
    return 0;
}
