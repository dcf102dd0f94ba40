#include "io/sha1.h"

#include <assert.h>
#include <string.h>

static uint32_t rol(uint32_t v, int n) {
    return v << n | v >> (32 - n);
}

static uint32_t mix(int round, uint32_t b, uint32_t c, uint32_t d) {
    switch (round / 20) {
    case 0:
        return (b & c) | (~b & d);
    case 2:
        return (b & c) | (b & d) | (c & d);
    default:
        return b ^ c ^ d;
    }
}

static void block(uint32_t h[5], const uint8_t *p) {
    static const uint32_t k[] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
    uint32_t w[80], v[5];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 80; i++)
        w[i] = rol(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    memcpy(v, h, sizeof(v));
    for (int i = 0; i < 80; i++) {
        uint32_t next = rol(v[0], 5) + mix(i, v[1], v[2], v[3]) + v[4] + k[i / 20] + w[i];
        v[4] = v[3];
        v[3] = v[2];
        v[2] = rol(v[1], 30);
        v[1] = v[0];
        v[0] = next;
    }
    for (int i = 0; i < 5; i++)
        h[i] += v[i];
}

void sha1_short(const void *bytes, size_t n, uint8_t ret[SHA1_BYTES]) {
    uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    uint8_t padded[128] = {0};
    size_t total = n < 56 ? 64 : 128;
    assert(n < 120);
    memcpy(padded, bytes, n);
    padded[n] = 0x80;
    padded[total - 2] = (uint8_t)(n * 8 >> 8);
    padded[total - 1] = (uint8_t)(n * 8);
    for (size_t at = 0; at < total; at += 64)
        block(h, padded + at);
    for (int i = 0; i < SHA1_BYTES; i++)
        ret[i] = (uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
}
