/*
 * Base64 (RFC 4648).
 *
 * The decoder is strict: padding is required, and no other character, not even a newline, is
 * accepted.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define BASE64_SIZE(n) (((n) + 2) / 3 * 4 + 1) /* size of the text, with its NUL */

void base64_encode(const void *bytes, size_t n, char *to);

/* `to` has room for n / 4 * 3 bytes. False: the text is not base64. */
bool base64_decode(const char *text, size_t n, void *to, size_t *ret_len);
