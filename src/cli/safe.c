#include "cli/safe.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text/visible.h"
#include "base/utf8.h"

#undef printf
#undef fprintf
#undef puts
#undef fputs

/* Invisible characters that are printed unchanged in a name, in JSON and in a text; ends with 0. */
static const uint32_t in_name[] = {0};
static const uint32_t in_json[] = {'\n', 0};
/* A text may also have spaces of other scripts, and the variation selector after many emoji. */
static const uint32_t in_text[] = {'\n', '\t', 0xa0, 0x202f, 0x3000, 0xfe0f, 0};

static bool is_harmful(uint32_t c, const uint32_t *allowed) {
    for (; *allowed; allowed++)
        if (*allowed == c)
            return false;
    return visible_is_unseen(c);
}

/* Returns how many bytes at the start of the text are safe. *ret_c is the first unsafe character,
 * of *ret_n bytes. */
static size_t span(const char *text, size_t len, const uint32_t *allowed, size_t *ret_n,
                   uint32_t *ret_c) {
    size_t at = 0;
    for (*ret_n = 0; at < len; at += *ret_n) {
        uint32_t c = 0;
        *ret_n = utf8_decode(text + at, len - at, &c);
        *ret_c = c;
        if (*ret_n == 0 || is_harmful(c, allowed))
            break;
    }
    return at;
}

static void print(FILE *to, const char *text, size_t len, const uint32_t *allowed) {
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
    print(to, name, strlen(name), in_name);
}

char *safe_copy(const char *name) {
    char *text = NULL;
    size_t n;
    FILE *to = alloc_check(open_memstream(&text, &n));
    safe_name(to, name);
    if (fclose(to) != 0)
        abort();
    return text;
}

void safe_text(FILE *to, const char *text, size_t len) {
    print(to, text, len, in_text);
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
        size_t plain = span(text, len, in_json, &n, &c);
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

/* ---- printf ---- */

/* One conversion of a printf format, such as "%-*.*s", with its length modifier. */
struct conversion {
    char text[32];
    int stars[2];
    size_t star_count;
    char length, kind; /* length: 0, 'l', 'L' for ll, 'z', 'j' */
};

/* Reads a conversion at `format`, after the percent sign; returns its end. */
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

static void safe_put_number(FILE *to, const struct conversion *c, va_list *args) {
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

/* Reads no more bytes than the precision allows: memory after them may not be valid. */
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
    char *given = xstrndup(name, most), *shown = safe_copy(given);
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
            safe_put_number(to, &c, &args);
    }
    va_end(args);
    return ferror(to) ? -1 : 0;
}
