#include "base/md5.h"

#include <string.h>

#include "base/hex.h"

static const uint32_t k[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
};

static const uint8_t turns[4][4] = {
    {7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};

static uint32_t md5_le32(const uint8_t *p) {
    return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

/* The function of a round, and which word of the block its step i takes. */
static uint32_t md5_mix(unsigned i, uint32_t b, uint32_t c, uint32_t d, unsigned *ret_word) {
    switch (i / 16) {
    case 0:
        *ret_word = i;
        return (b & c) | (~b & d);
    case 1:
        *ret_word = (5 * i + 1) % 16;
        return (d & b) | (~d & c);
    case 2:
        *ret_word = (3 * i + 5) % 16;
        return b ^ c ^ d;
    default:
        *ret_word = 7 * i % 16;
        return c ^ (b | ~d);
    }
}

static void md5_block(struct md5 *m, const uint8_t *p) {
    uint32_t a = m->h[0], b = m->h[1], c = m->h[2], d = m->h[3];
    for (unsigned i = 0; i < 64; i++) {
        unsigned word, turn = turns[i / 16][i % 4];
        uint32_t f = md5_mix(i, b, c, d, &word);
        f += a + k[i] + md5_le32(p + (size_t)4 * word);
        a = d;
        d = c;
        c = b;
        b += f << turn | f >> (32 - turn);
    }
    m->h[0] += a;
    m->h[1] += b;
    m->h[2] += c;
    m->h[3] += d;
}

void md5_init(struct md5 *m) {
    *m = (struct md5){.h = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476}};
}

void md5_add(struct md5 *m, const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    while (n) {
        size_t at = m->n % 64, part = n < 64 - at ? n : 64 - at;
        memcpy(m->block + at, p, part);
        m->n += part;
        p += part;
        n -= part;
        if (m->n % 64 == 0)
            md5_block(m, m->block);
    }
}

void md5_end_hex(struct md5 *m, char ret[MD5_HEX]) {
    static const uint8_t padding[64] = {0x80};
    uint8_t size[8], hash[MD5_BYTES];
    uint64_t bits = m->n * 8;
    for (int i = 0; i < 8; i++)
        size[i] = (uint8_t)(bits >> 8 * i);
    md5_add(m, padding, 64 - (m->n + 8) % 64);
    md5_add(m, size, 8);
    for (size_t i = 0; i < MD5_BYTES; i++)
        hash[i] = (uint8_t)(m->h[i / 4] >> 8 * (i % 4));
    hex_put(hash, MD5_BYTES, ret);
}
