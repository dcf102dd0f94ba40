#include "base/sha256.h"

#include <string.h>

#include "base/hex.h"

static const uint32_t k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t ror(uint32_t x, unsigned n) {
    return x >> n | x << (32 - n);
}

static uint32_t be32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/*
 * One round changes two of the eight words. Callers rotate the arguments in each round, so no word
 * is ever copied.
 */
static inline void round_of(const uint32_t *a, const uint32_t *b, const uint32_t *c, uint32_t *d,
                            const uint32_t *e, const uint32_t *f, const uint32_t *g, uint32_t *h,
                            uint32_t kw) {
    uint32_t t = *h + (ror(*e, 6) ^ ror(*e, 11) ^ ror(*e, 25)) + ((*e & *f) ^ (~*e & *g)) + kw;
    *d += t;
    *h = t + (ror(*a, 2) ^ ror(*a, 13) ^ ror(*a, 22)) + ((*a & *b) ^ (*a & *c) ^ (*b & *c));
}

static void compress(uint32_t state[8], const uint8_t *p) {
    uint32_t w[64];
    for (int i = 0; i < 16; i++)
        w[i] = be32(p + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t x = w[i - 15], y = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (ror(x, 7) ^ ror(x, 18) ^ x >> 3) +
               (ror(y, 17) ^ ror(y, 19) ^ y >> 10);
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; i += 8) {
        round_of(&a, &b, &c, &d, &e, &f, &g, &h, k[i] + w[i]);
        round_of(&h, &a, &b, &c, &d, &e, &f, &g, k[i + 1] + w[i + 1]);
        round_of(&g, &h, &a, &b, &c, &d, &e, &f, k[i + 2] + w[i + 2]);
        round_of(&f, &g, &h, &a, &b, &c, &d, &e, k[i + 3] + w[i + 3]);
        round_of(&e, &f, &g, &h, &a, &b, &c, &d, k[i + 4] + w[i + 4]);
        round_of(&d, &e, &f, &g, &h, &a, &b, &c, k[i + 5] + w[i + 5]);
        round_of(&c, &d, &e, &f, &g, &h, &a, &b, k[i + 6] + w[i + 6]);
        round_of(&b, &c, &d, &e, &f, &g, &h, &a, k[i + 7] + w[i + 7]);
    }
    const uint32_t add[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; i++)
        state[i] += add[i];
}

static void compress_plain(uint32_t state[8], const uint8_t *p, size_t blocks) {
    for (; blocks; blocks--, p += 64)
        compress(state, p);
}

/* --- instructions for SHA-256 --- */

#ifdef __AARCH64EL__
#include <arm_neon.h>
#include <sys/auxv.h>

enum { CPU_HAS_SHA256 = 1 << 6 }; /* HWCAP_SHA2 of the kernel */

/*
 * Written as assembly, because compilers know the instructions only for files that need a CPU with
 * them. h and h2 do four rounds; su0 and su1 compute the next four words of the message.
 */
#define SHA_OP(text) ".arch_extension sha2\n\t" text
static inline uint32x4_t op_h(uint32x4_t a, uint32x4_t b, uint32x4_t wk) {
    __asm__(SHA_OP("sha256h %q0, %q1, %2.4s") : "+w"(a) : "w"(b), "w"(wk));
    return a;
}
static inline uint32x4_t op_h2(uint32x4_t a, uint32x4_t b, uint32x4_t wk) {
    __asm__(SHA_OP("sha256h2 %q0, %q1, %2.4s") : "+w"(a) : "w"(b), "w"(wk));
    return a;
}
static inline uint32x4_t op_su0(uint32x4_t a, uint32x4_t b) {
    __asm__(SHA_OP("sha256su0 %0.4s, %1.4s") : "+w"(a) : "w"(b));
    return a;
}
static inline uint32x4_t op_su1(uint32x4_t a, uint32x4_t b, uint32x4_t c) {
    __asm__(SHA_OP("sha256su1 %0.4s, %1.4s, %2.4s") : "+w"(a) : "w"(b), "w"(c));
    return a;
}

static void compress_cpu(uint32_t state[8], const uint8_t *p, size_t blocks) {
    uint32x4_t low = vld1q_u32(state), high = vld1q_u32(state + 4);
    for (; blocks; blocks--, p += 64) {
        const uint32x4_t was_low = low, was_high = high;
        uint32x4_t w[4];
        for (int i = 0; i < 4; i++)
            w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(p + 16 * i)));
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            const uint32x4_t wk = vaddq_u32(w[i % 4], vld1q_u32(k + 4 * i)), before = low;
            low = op_h(low, high, wk);
            high = op_h2(high, before, wk);
            if (i < 12)
                w[i % 4] = op_su1(op_su0(w[i % 4], w[(i + 1) % 4]), w[(i + 2) % 4], w[(i + 3) % 4]);
        }
        low = vaddq_u32(low, was_low);
        high = vaddq_u32(high, was_high);
    }
    vst1q_u32(state, low);
    vst1q_u32(state + 4, high);
}

static bool cpu_has_sha256(void) {
    return getauxval(AT_HWCAP) & CPU_HAS_SHA256;
}
#elif defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

enum { CPU_SSSE3 = 1 << 9, CPU_SSE41 = 1 << 19, CPU_SHA = 1 << 29 }; /* of cpuid 1 and 7 */

/*
 * The instruction for two rounds wants the words of the state in two other groups: a, b, e, f and
 * c, d, g, h.
 */
__attribute__((target("sha,sse4.1,ssse3"))) static void
compress_cpu(uint32_t state[8], const uint8_t *p, size_t blocks) {
    const __m128i swap = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
    __m128i first = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)state), 0xb1),
            last = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)(state + 4)),
                                     0x1b);
    __m128i abef = _mm_alignr_epi8(first, last, 8), cdgh = _mm_blend_epi16(last, first, 0xf0);
    for (; blocks; blocks--, p += 64) {
        const __m128i was_abef = abef, was_cdgh = cdgh;
        __m128i w[4];
        for (int i = 0; i < 4; i++)
            w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i)),
                                    swap);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            const __m128i next = w[(i + 3) % 4];
            const __m128i wk = _mm_add_epi32(
                w[i % 4], _mm_loadu_si128((const __m128i *)(const void *)(k + 4 * i)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(wk, 0x0e));
            if (i < 12)
                w[i % 4] = _mm_sha256msg2_epu32(
                    _mm_add_epi32(_mm_sha256msg1_epu32(w[i % 4], w[(i + 1) % 4]),
                                  _mm_alignr_epi8(next, w[(i + 2) % 4], 4)),
                    next);
        }
        abef = _mm_add_epi32(abef, was_abef);
        cdgh = _mm_add_epi32(cdgh, was_cdgh);
    }
    first = _mm_shuffle_epi32(abef, 0x1b);
    last = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(first, last, 0xf0));
    _mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(last, first, 8));
}

static bool cpu_asks(void) {
    unsigned a, b, c, d, b7;
    return __get_cpuid_count(7, 0, &a, &b7, &c, &d) && __get_cpuid(1, &a, &b, &c, &d) &&
           (b7 & CPU_SHA) && (c & CPU_SSSE3) && (c & CPU_SSE41);
}

/* cpuid is slow in a virtual machine, so it is asked once. Threads that ask at the same time get
 * the same answer. */
static bool cpu_has_sha256(void) {
    static _Atomic int known; /* 1: no, 2: yes */
    if (!known)
        known = 1 + cpu_asks();
    return known == 2;
}
#else
static void compress_cpu(uint32_t state[8], const uint8_t *p, size_t blocks) {
    (void)state, (void)p, (void)blocks;
}
static bool cpu_has_sha256(void) {
    return false;
}
#endif

static void compress_blocks(uint32_t state[8], const uint8_t *p, size_t blocks) {
    if (cpu_has_sha256())
        compress_cpu(state, p, blocks);
    else
        compress_plain(state, p, blocks);
}

/* --- the hash --- */

void sha256_init(struct sha256 *s) {
    *s = (struct sha256){.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                               0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void sha256_add(struct sha256 *s, const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    size_t held = s->n % 64;
    if (n == 0)
        return; /* `bytes` may be NULL here, which memcpy() does not allow */
    s->n += n;
    if (held) {
        size_t take = n < 64 - held ? n : 64 - held;
        memcpy(s->block + held, p, take);
        p += take, n -= take;
        if (held + take < 64)
            return;
        compress_blocks(s->h, s->block, 1);
    }
    if (n >= 64)
        compress_blocks(s->h, p, n / 64);
    memcpy(s->block, p + n / 64 * 64, n % 64);
}

void sha256_end(struct sha256 *s, uint8_t out[32]) {
    uint64_t bits = s->n * 8;
    static const uint8_t pad[64] = {0x80};
    size_t held = s->n % 64;
    sha256_add(s, pad, held < 56 ? 56 - held : 120 - held);
    uint8_t tail[8];
    for (int i = 0; i < 8; i++)
        tail[i] = (uint8_t)(bits >> (56 - 8 * i));
    sha256_add(s, tail, 8);
    for (int i = 0; i < 32; i++)
        out[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void sha256_end_hex(struct sha256 *s, char ret[SHA256_HEX]) {
    uint8_t hash[SHA256_BYTES];
    sha256_end(s, hash);
    hex_put(hash, sizeof(hash), ret);
}

void sha256_hex(const void *bytes, size_t n, char ret[SHA256_HEX]) {
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, bytes, n);
    sha256_end_hex(&s, ret);
}
