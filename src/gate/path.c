#include "gate/path.h"

#include <ctype.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/fs/dots.h"
#include "base/utf8.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static int hex(char c) {
    return c >= '0' && c <= '9' ? c - '0' : isxdigit((unsigned char)c) ? (c | 32) - 'a' + 10 : -1;
}

int path_hex(const char *digits) {
    int high = hex(digits[0]), low = high < 0 ? -1 : hex(digits[1]);
    return low < 0 ? -1 : high * 16 + low;
}

/* Returns the next byte, decoded once; -1: a percent sign without two hexadecimal digits. */
static int next_byte(const char **at, bool *ret_encoded) {
    const char *p = *at;
    *ret_encoded = *p == '%';
    *at += *ret_encoded ? 3 : 1;
    if (!*ret_encoded)
        return (unsigned char)*p;
    int c = path_hex(p + 1);
    if (c < 0)
        *at = p + 1;
    return c;
}

/* Some servers replace these characters by the ASCII characters that they look like. */
static const uint32_t lookalikes[] = {
    0x2024, 0x2025, 0x2026, 0xfe52, 0xff0e, /* dots */
    0x2044, 0x2215, 0x29f8, 0xff0f,         /* slashes */
    0x2216, 0x29f5, 0xfe68, 0xff3c,         /* backslashes */
    0xfe6a, 0xff05,                         /* percent signs */
};

static bool is_lookalike(uint32_t c) {
    for (size_t i = 0; i < COUNT(lookalikes); i++)
        if (lookalikes[i] == c)
            return true;
    return false;
}

/* Reads a character of several bytes. False: not valid UTF-8 in its shortest form, or a lookalike.
 */
static bool is_strict_utf8(int byte, const char **at) {
    char bytes[4];
    size_t n = 0;
    struct utf8 u = {0};
    uint32_t c;
    bool encoded;
    do {
        bytes[n] = (char)byte;
        if (byte < 0 || !utf8_feed(&u, &bytes[n++], 1))
            return false;
        if (!utf8_whole(&u))
            byte = **at ? next_byte(at, &encoded) : -1;
    } while (!utf8_whole(&u));
    return utf8_decode(bytes, n, &c) == n && !is_lookalike(c);
}

/* A server could decode an encoded dot, slash or percent sign and read another path. */
static bool is_plain_byte(int c, bool encoded) {
    if (c <= ' ' || c == 127)
        return encoded && c == ' ';
    return c != '\\' && !strchr(encoded ? "./%" : "#", c);
}

static bool is_parameter(const char *p) {
    return *p == ';' || (*p == '%' && path_hex(p + 1) == ';');
}

/* Many servers drop the part of a segment after ';' before they check for dot segments. */
static bool is_plain_segment(const char *p, size_t n) {
    size_t name = 0;
    while (name < n && !is_parameter(p + name))
        name++;
    bool last = n == 0 && !p[0]; /* the empty segment after a final slash */
    return !is_dots_part(p, name) && (name > 0 || last);
}

bool path_is_plain(const char *path) {
    if (path[0] != '/')
        return false;
    for (const char *p = path; *p;) {
        bool encoded;
        if (*p == '/' && !is_plain_segment(p + 1, strcspn(p + 1, "/")))
            return false;
        int c = next_byte(&p, &encoded);
        if (c < 0 || (c < 0x80 && !is_plain_byte(c, encoded)))
            return false;
        if (c >= 0x80 && !is_strict_utf8(c, &p))
            return false;
    }
    return true;
}
