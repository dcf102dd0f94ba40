#include "base/text/secret_forms.h"

#include <ctype.h>
#include <string.h>

#include "base/defer.h"
#include "base/secret.h"

enum { FORM_LEAST = 8, LONG = 16, FORM_MAX = 6 * SECRET_MAX + 64 };

/* Skips forms shorter than `least`, because a short text would also mask unrelated text. */
static bool add_form(struct needles *to, struct buf *form, bool ok, size_t least) {
    size_t n = form->len, beginning = n >= LONG ? n / 2 : n;
    ok = ok && (n < least || needles_add_beginning(to, form->data, n, beginning));
    secret_wipe(form);
    return ok;
}

/* ---- encodings of single characters ---- */

typedef bool put_fn(struct buf *out, unsigned char c);

static bool put_plain(struct buf *out, unsigned char c) {
    return buf_add(out, &c, 1);
}

static bool put_hex_low(struct buf *out, unsigned char c) {
    return buf_addf(out, "%02x", c);
}

static bool put_hex_up(struct buf *out, unsigned char c) {
    return buf_addf(out, "%02X", c);
}

static bool is_free(unsigned char c) {
    return isalnum(c) || (c && strchr("-._~", c));
}

static bool put_query_up(struct buf *out, unsigned char c) {
    return is_free(c) ? put_plain(out, c) : buf_addf(out, "%%%02X", c);
}

static bool put_query_low(struct buf *out, unsigned char c) {
    return is_free(c) ? put_plain(out, c) : buf_addf(out, "%%%02x", c);
}

static bool put_form(struct buf *out, unsigned char c) {
    return c == ' ' ? put_plain(out, '+') : put_query_up(out, c);
}

static bool put_percent_up(struct buf *out, unsigned char c) {
    return buf_addf(out, "%%%02X", c);
}

static bool put_percent_low(struct buf *out, unsigned char c) {
    return buf_addf(out, "%%%02x", c);
}

static bool put_unicode_low(struct buf *out, unsigned char c) {
    return buf_addf(out, "\\u%04x", c);
}

static bool put_unicode_up(struct buf *out, unsigned char c) {
    return buf_addf(out, "\\u%04X", c);
}

static bool put_json(struct buf *out, unsigned char c) {
    return (!strchr("\"\\", c) || put_plain(out, '\\')) && put_plain(out, c);
}

static bool put_json_slash(struct buf *out, unsigned char c) {
    return (!strchr("\"\\/", c) || put_plain(out, '\\')) && put_plain(out, c);
}

/* Writes a character as JSON writers escape it for JSON inside HTML pages. */
static bool put_json_safe(struct buf *out, unsigned char c) {
    return strchr("<>&'", c) ? put_unicode_low(out, c) : put_json(out, c);
}

static bool put_html(struct buf *out, unsigned char c) {
    static const struct {
        unsigned char c;
        const char *text;
    } names[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (names[i].c == c)
            return buf_addf(out, "%s", names[i].text);
    return put_plain(out, c);
}

static bool put_html_hex(struct buf *out, unsigned char c) {
    return c == '\'' ? buf_addf(out, "&#x27;") : put_html(out, c);
}

static bool put_html_number(struct buf *out, unsigned char c) {
    return buf_addf(out, "&#%u;", c);
}

static put_fn *const writers[] = {
    put_hex_low,    put_hex_up,      put_query_up,    put_query_low,  put_form,
    put_percent_up, put_percent_low, put_unicode_low, put_unicode_up, put_json,
    put_json_slash, put_json_safe,   put_html,        put_html_hex,   put_html_number,
};

static bool add_written(const char *value, size_t n, put_fn *put, size_t least,
                        struct needles *ret) {
    struct buf out = BUF(FORM_MAX);
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++)
        ok = put(&out, (unsigned char)value[i]);
    return add_form(ret, &out, ok, least);
}

/* ---- base64 and base32 ---- */

static const struct alphabet {
    const char *digits;
    unsigned bits, group; /* bits per digit; number of bytes after which the pattern repeats */
} alphabets[] = {
    {"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", 6, 3},
    {"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", 6, 3},
    {"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 5, 5},
    {"abcdefghijklmnopqrstuvwxyz234567", 5, 5},
};

/* Adds the base64 or base32 digits that depend only on the secret's value, if `before` other bytes
 * precede the value. */
static bool add_digits(const char *value, size_t n, const struct alphabet *a, size_t before,
                       struct needles *ret) {
    struct buf out = BUF(FORM_MAX);
    size_t first = (before * 8 + a->bits - 1) / a->bits, end = (before + n) * 8 / a->bits;
    bool ok = true;
    for (size_t i = first; ok && i < end; i++) {
        unsigned digit = 0;
        for (size_t bit = i * a->bits; bit < (i + 1) * a->bits; bit++) {
            unsigned char c = (unsigned char)value[bit / 8 - before];
            digit = digit << 1 | (c >> (7 - bit % 8) & 1);
        }
        ok = buf_add(&out, &a->digits[digit], 1);
    }
    return add_form(ret, &out, ok, FORM_LEAST);
}

bool secret_forms_add(const char *value, size_t n, struct needles *ret) {
    bool ok = add_written(value, n, put_plain, 1, ret);
    for (size_t i = 0; ok && i < sizeof(writers) / sizeof(*writers); i++)
        ok = add_written(value, n, writers[i], FORM_LEAST, ret);
    for (size_t i = 0; i < sizeof(alphabets) / sizeof(*alphabets); i++)
        for (size_t before = 0; ok && before < alphabets[i].group; before++)
            ok = add_digits(value, n, &alphabets[i], before, ret);
    return ok;
}
