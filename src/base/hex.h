/* Bytes as hexadecimal digits, in lower case only, so that each number has one spelling. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes 2 * n digits and a NUL. */
static inline void hex_put(const uint8_t *bytes, size_t n, char *ret) {
    for (size_t i = 0; i < n; i++) {
        ret[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        ret[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
    ret[2 * n] = '\0';
}

/* Reads n bytes from 2 * n digits. False: another character is among them. */
bool hex_read(const char *digits, size_t n, uint8_t *ret);

/* Whether the text is `count` digits and nothing else. */
bool hex_is(const char *text, size_t count);
