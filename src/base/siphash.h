/*
 * SipHash-2-4, a short keyed hash for hash tables.
 *
 * Keys of tables may come from outside: without the hash key nobody can construct collisions.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct siphash_key {
    uint64_t k[2];
};

uint64_t siphash(const struct siphash_key *key, const void *data, size_t size);

/* Returns the random key of this process. The first call makes it; any thread may call. */
const struct siphash_key *siphash_own_key(void);
