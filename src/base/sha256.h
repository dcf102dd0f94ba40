/*
 * SHA-256 (FIPS 180-4), incremental: sha256_init(), sha256_add() any number of times, sha256_end().
 *
 * Pure: no allocation and no system call, so confined workers can use it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_HEX = 2 * SHA256_BYTES + 1 };

struct sha256 {
    uint32_t h[8];
    uint64_t n;
    uint8_t block[64];
};

void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *bytes, size_t n);
void sha256_end(struct sha256 *s, uint8_t out[SHA256_BYTES]);

/* Ends the hash as sha256_end(), and writes it as hexadecimal digits (base/hex.h). */
void sha256_end_hex(struct sha256 *s, char ret[SHA256_HEX]);
void sha256_hex(const void *bytes, size_t n, char ret[SHA256_HEX]);
