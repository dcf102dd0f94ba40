#include "cli/safe.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#undef printf
#undef fprintf
#undef puts
#undef fputs

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

/* How many bytes go out as they are, up to the first character that must not. */
static size_t span(const char *text, size_t len, const char *allowed, size_t *ret_n,
                   uint32_t *ret_c) {
    size_t at = 0;
    for (*ret_n = 0; at < len; at += *ret_n) {
        uint32_t c = 0;
        *ret_n = decode((const unsigned char *)text + at, len - at, &c);
        *ret_c = c;
        if (*ret_n == 0 || (is_harmful(c) && !(c && c < 128 && strchr(allowed, (int)c))))
            break;
    }
    return at;
}

static void print(FILE *to, const char *text, size_t len, const char *allowed) {
    while (len) {
        size_t n;
        uint32_t c;
        size_t plain = span(text, len, allowed, &n, &c);
        fwrite(text, 1, plain, to);
        text += plain;
        len -= plain;
        for (n = !len ? 0 : n ? n : 1; n; n--, text++, len--)
            fprintf(to, "\\x%02x", (unsigned char)*text);
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

int safe_puts(FILE *to, const char *text, bool is_own, const char *end) {
    if (is_own)
        fputs(text, to);
    else
        safe_text(to, text, strlen(text));
    return fputs(end, to);
}

void safe_json(FILE *to, const char *text, size_t len) {
    while (len) {
        size_t n;
        uint32_t c;
        size_t plain = span(text, len, "\n", &n, &c);
        fwrite(text, 1, plain, to);
        text += plain;
        len -= plain;
        if (!len)
            return;
        if (n && c >= 0x10000)
            fprintf(to, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + (c & 0x3ff));
        else
            fprintf(to, "\\u%04x", n ? c : 0xfffd);
        text += n ? n : 1;
        len -= n ? n : 1;
    }
}

void safe_json_line(const char *text) {
    safe_json(stdout, text, strlen(text));
    fputc('\n', stdout);
}

/* ---- printf, text by text ---- */

/* One conversion of a format: "%-*.*s" and its length modifier. */
struct conversion {
    char text[32];
    int stars[2];
    size_t star_count;
    char length, kind; /* length: 0, 'l', 'L' for ll, 'z', 'j' */
};

/* Reads it at `format`, which is behind the percent sign; returns where the format goes on. */
static const char *read_conversion(const char *format, struct conversion *ret, va_list *args) {
    size_t n = 0;
    *ret = (struct conversion){.text = "%"};
    for (n = 1; *format; format++) {
        if (n + 1 >= sizeof(ret->text))
            abort();
        ret->text[n++] = *format;
        if (*format == '*' && ret->star_count < 2)
            ret->stars[ret->star_count++] = va_arg(*args, int);
        else if (*format == 'l')
            ret->length = ret->length == 'l' ? 'L' : 'l';
        else if (*format == 'z' || *format == 'j')
            ret->length = *format;
        else if (!strchr("-+ #0123456789.h", *format))
            break;
    }
    ret->kind = *format;
    return *format ? format + 1 : format;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#define PUT(to, c, value)                                                  \
    ((c)->star_count == 0   ? fprintf(to, (c)->text, value)                \
     : (c)->star_count == 1 ? fprintf(to, (c)->text, (c)->stars[0], value) \
                            : fprintf(to, (c)->text, (c)->stars[0], (c)->stars[1], value))

static void put_number(FILE *to, const struct conversion *c, va_list *args) {
    if (strchr("feg", c->kind))
        PUT(to, c, va_arg(*args, double));
    else if (c->length == 'L')
        PUT(to, c, va_arg(*args, long long));
    else if (c->length == 'l')
        PUT(to, c, va_arg(*args, long));
    else if (c->length == 'z')
        PUT(to, c, va_arg(*args, size_t));
    else if (c->length == 'j')
        PUT(to, c, va_arg(*args, intmax_t));
    else
        PUT(to, c, va_arg(*args, int));
}

/* A precision counts bytes of what was given, and what it cuts off may not be there at all. */
static void put_name(FILE *to, const struct conversion *c, const char *name) {
    const char *dot = strchr(c->text, '.');
    struct conversion plain = *c;
    size_t most = SIZE_MAX;
    if (dot && dot[1] == '*') {
        most = (size_t)c->stars[--plain.star_count];
        snprintf(plain.text + (dot - c->text), 2, "s");
    } else if (dot) {
        most = strtoul(dot + 1, NULL, 10);
        snprintf(plain.text + (dot - c->text), 2, "s");
    }
    char *given = strndup(name, most), *shown = given ? safe_copy(given) : NULL;
    if (!shown)
        abort();
    PUT(to, &plain, shown);
    free(given);
    free(shown);
}
#pragma GCC diagnostic pop

int safe_printf(FILE *to, const char *format, ...) {
    va_list args;
    va_start(args, format);
    while (*format) {
        size_t own = strcspn(format, "%");
        struct conversion c;
        fwrite(format, 1, own, to);
        format += own;
        if (!*format)
            break;
        format = read_conversion(format + 1, &c, &args);
        if (c.kind == '%')
            fputc('%', to);
        else if (c.kind == 's')
            put_name(to, &c, va_arg(args, const char *));
        else
            put_number(to, &c, &args);
    }
    va_end(args);
    return ferror(to) ? -1 : 0;
}
