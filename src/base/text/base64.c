#include "base/text/base64.h"

#include <stdint.h>
#include <string.h>

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(const void *bytes, size_t n, char *to) {
    const uint8_t *p = bytes;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t group = (uint32_t)p[i] << 16;
        if (i + 1 < n)
            group |= (uint32_t)p[i + 1] << 8;
        if (i + 2 < n)
            group |= p[i + 2];
        *to++ = letters[group >> 18];
        *to++ = letters[group >> 12 & 63];
        *to++ = i + 1 < n ? letters[group >> 6 & 63] : '=';
        *to++ = i + 2 < n ? letters[group & 63] : '=';
    }
    *to = '\0';
}

static int value_of(char c) {
    const char *at = c ? strchr(letters, c) : NULL;
    return at ? (int)(at - letters) : -1;
}

bool base64_decode(const char *text, size_t n, void *to, size_t *ret_len) {
    uint8_t *out = to;
    size_t pad = n && text[n - 1] == '=' ? 1 + (n > 1 && text[n - 2] == '=') : 0;
    if (n % 4)
        return false;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t group = 0;
        size_t blanks = i + 4 == n ? pad : 0;
        for (size_t k = 0; k < 4; k++) {
            int v = k >= 4 - blanks ? 0 : value_of(text[i + k]);
            if (v < 0)
                return false;
            group = group << 6 | (uint32_t)v;
        }
        /*
         * Unused bits of the last character must be zero, or two texts would decode to the same
         * bytes.
         */
        if ((blanks == 1 && group & 0xff) || (blanks == 2 && group & 0xffff))
            return false;
        for (size_t k = 0; k < 3 - blanks; k++)
            *out++ = (uint8_t)(group >> (16 - 8 * k));
    }
    *ret_len = (size_t)(out - (uint8_t *)to);
    return true;
}
