#include "cli/safe.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the UTF-8 character at s and its number; 0 when there is none. */
static size_t decode(const unsigned char *s, size_t len, uint32_t *ret) {
    static const struct {
        unsigned char mask, lead;
        uint32_t min;
    } forms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    for (size_t more = 0; more < 4; more++) {
        if ((s[0] & forms[more].mask) != forms[more].lead)
            continue;
        uint32_t c = s[0] & (unsigned char)~forms[more].mask;
        for (size_t i = 1; i <= more; i++) {
            if (i >= len || (s[i] & 0xc0) != 0x80)
                return 0;
            c = c << 6 | (s[i] & 0x3fu);
        }
        *ret = c;
        return c < forms[more].min || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : more + 1;
    }
    return 0;
}

/* First and last character of what must not reach a terminal. */
static const uint32_t harmful[][2] = {
    {0x00, 0x1f},     {0x7f, 0x9f},     {0x61c, 0x61c},   {0x200e, 0x200f},
    {0x2028, 0x202e}, {0x2066, 0x2069}, {0xfeff, 0xfeff}, {0xe0000, 0xe007f},
};

static bool is_harmful(uint32_t c) {
    for (size_t i = 0; i < sizeof(harmful) / sizeof(*harmful); i++)
        if (c >= harmful[i][0] && c <= harmful[i][1])
            return true;
    return false;
}

static void print(FILE *to, const char *text, size_t len, const char *allowed) {
    for (size_t at = 0; at < len;) {
        uint32_t c = 0;
        size_t n = decode((const unsigned char *)text + at, len - at, &c);
        bool shown = n && (!is_harmful(c) || (c && c < 128 && strchr(allowed, (int)c)));
        n = n ? n : 1;
        if (shown)
            fwrite(text + at, 1, n, to);
        else
            for (size_t i = 0; i < n; i++)
                fprintf(to, "\\x%02x", (unsigned char)text[at + i]);
        at += n;
    }
}

void safe_name(FILE *to, const char *name) {
    print(to, name, strlen(name), "");
}

char *safe_copy(const char *name) {
    char *text = NULL;
    size_t n;
    FILE *to = open_memstream(&text, &n);
    if (!to)
        abort();
    safe_name(to, name);
    if (fclose(to) != 0)
        abort();
    return text;
}

void safe_text(FILE *to, const char *text, size_t len) {
    print(to, text, len, "\n\t");
}
