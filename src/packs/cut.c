#include "packs/cut.h"

/* A chunk ends where the upper 18 bits of the hash are 0: after 256 KiB on average. */
enum { CUT_SHIFT = 64 - 18 };

/* splitmix64, which gives a fixed sequence of numbers. */
static uint64_t cut_number(uint64_t i) {
    uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void cut_init(struct cut *c) {
    for (unsigned i = 0; i < 256; i++)
        c->gear[i] = cut_number(i);
}

/* The hash covers the last 64 bytes, because older ones are shifted out of it. */
size_t cut_next(const struct cut *c, const uint8_t *bytes, size_t n) {
    size_t most = n < CUT_MAX ? n : CUT_MAX;
    uint64_t hash = 0;
    if (n <= CUT_MIN)
        return n;
    for (size_t i = CUT_MIN - 64; i < most; i++) {
        hash = (hash << 1) + c->gear[bytes[i]];
        if (i >= CUT_MIN && hash >> CUT_SHIFT == 0)
            return i + 1;
    }
    return most;
}
