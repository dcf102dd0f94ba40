#include "base/utf8.h"

/* What a first byte promises; overlong forms, surrogates and values past 10FFFF have no row. */
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
