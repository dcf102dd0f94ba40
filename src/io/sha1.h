/*
 * SHA-1, which the WebSocket handshake requires.
 *
 * For nothing else: it gives no security.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { SHA1_BYTES = 20 };

/* Of a short text: at most 119 bytes, two blocks. */
void sha1_short(const void *bytes, size_t n, uint8_t ret[SHA1_BYTES]);
