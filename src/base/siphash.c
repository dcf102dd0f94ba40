#include "base/siphash.h"

#include <endian.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static struct siphash_key own_key;

static void make_own_key(void) {
    if (getrandom(&own_key, sizeof(own_key), 0) != sizeof(own_key))
        abort(); /* never happens: getrandom() returns up to 256 bytes at once */
}

const struct siphash_key *siphash_own_key(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_own_key);
    return &own_key;
}

static uint64_t turn(uint64_t x, unsigned bits) {
    return x << bits | x >> (64 - bits);
}

static void mix(uint64_t v[4], unsigned rounds) {
    while (rounds--) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = turn(v[1], 13) ^ v[0];
        v[3] = turn(v[3], 16) ^ v[2];
        v[0] = turn(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = turn(v[1], 17) ^ v[2];
        v[3] = turn(v[3], 21) ^ v[0];
        v[2] = turn(v[2], 32);
    }
}

static void siphash_take_word(uint64_t v[4], uint64_t word) {
    v[3] ^= word;
    mix(v, 2);
    v[0] ^= word;
}

uint64_t siphash(const struct siphash_key *key, const void *data, size_t size) {
    uint64_t v[4] = {key->k[0] ^ 0x736f6d6570736575, key->k[1] ^ 0x646f72616e646f6d,
                     key->k[0] ^ 0x6c7967656e657261, key->k[1] ^ 0x7465646279746573};
    const uint8_t *p = data, *end = p + (size & ~(size_t)7);
    uint64_t word;
    for (; p < end; p += sizeof(word)) {
        memcpy(&word, p, sizeof(word));
        siphash_take_word(v, le64toh(word));
    }
    word = 0;
    memcpy(&word, p, size & 7);
    siphash_take_word(v, le64toh(word) | (uint64_t)size << 56);
    v[2] ^= 0xff;
    mix(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
