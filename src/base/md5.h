/*
 * MD5 (RFC 1321), to compare files with the checksums of a package database.
 *
 * MD5 proves nothing against somebody who chooses the bytes: use it for no other purpose. Pure: no
 * allocation and no system call.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { MD5_BYTES = 16, MD5_HEX = 2 * MD5_BYTES + 1 };

struct md5 {
    uint32_t h[4];
    uint64_t n;
    uint8_t block[64];
};

void md5_init(struct md5 *m);
void md5_add(struct md5 *m, const void *bytes, size_t n);
/* Ends the hash and writes it as hexadecimal digits. */
void md5_end_hex(struct md5 *m, char ret[MD5_HEX]);
