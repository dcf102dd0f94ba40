/*
 * SHA-1, which the WebSocket handshake requires.
 *
 * Do not use it for anything else: SHA-1 is not secure.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { SHA1_BYTES = 20 };

/* Hashes at most 119 bytes (two blocks). */
void sha1_short(const void *bytes, size_t n, uint8_t ret[SHA1_BYTES]);
