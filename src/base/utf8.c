#include "base/utf8.h"

/* For each first byte, the number of bytes that follow and the range of the next one. Overlong
 * forms, surrogates and values above 10FFFF have no row. */
static const struct {
    uint8_t from, to, left, low, high;
} leads[] = {
    {0xc2, 0xdf, 1, 0x80, 0xbf}, {0xe0, 0xe0, 2, 0xa0, 0xbf}, {0xe1, 0xec, 2, 0x80, 0xbf},
    {0xed, 0xed, 2, 0x80, 0x9f}, {0xee, 0xef, 2, 0x80, 0xbf}, {0xf0, 0xf0, 3, 0x90, 0xbf},
    {0xf1, 0xf3, 3, 0x80, 0xbf}, {0xf4, 0xf4, 3, 0x80, 0x8f},
};

static bool lead(struct utf8 *u, uint8_t c) {
    for (size_t i = 0; i < sizeof(leads) / sizeof(*leads); i++)
        if (c >= leads[i].from && c <= leads[i].to) {
            *u = (struct utf8){leads[i].left, leads[i].low, leads[i].high};
            return true;
        }
    return false;
}

bool utf8_feed(struct utf8 *u, const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    for (size_t i = 0; i < n; i++) {
        if (u->left == 0) {
            if (p[i] >= 0x80 && !lead(u, p[i]))
                return false;
            continue;
        }
        if (p[i] < u->low || p[i] > u->high)
            return false;
        *u = (struct utf8){(uint8_t)(u->left - 1), 0x80, 0xbf};
    }
    return true;
}

bool utf8_valid(const void *bytes, size_t n) {
    struct utf8 u = {0};
    return utf8_feed(&u, bytes, n) && utf8_whole(&u);
}

size_t utf8_decode(const void *bytes, size_t n, uint32_t *ret) {
    const uint8_t *s = bytes;
    struct utf8 u = {0};
    if (n == 0 || !utf8_feed(&u, s, 1))
        return 0;
    size_t length = 1u + u.left;
    uint32_t c = u.left ? s[0] & (0x3fu >> u.left) : s[0];
    if (length > n || !utf8_feed(&u, s + 1, length - 1))
        return 0;
    for (size_t i = 1; i < length; i++)
        c = c << 6 | (s[i] & 0x3fu);
    *ret = c;
    return length;
}

size_t utf8_begin(const void *bytes, size_t n) {
    const uint8_t *s = bytes;
    size_t skip = 0;
    while (skip < n && skip < 3 && (s[skip] & 0xc0) == 0x80)
        skip++;
    return skip;
}

size_t utf8_end(const void *bytes, size_t n) {
    const uint8_t *s = bytes;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        uint8_t c = s[n - back];
        size_t want = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        if (want > 1)
            return want > back ? n - back : n;
        if (c < 0x80)
            return n;
    }
    return n;
}
