#include "wasm/text/wat_diag.h"

#include <stdarg.h>

#include "base/banned.h"

int wat_error(struct wat_diags *d, uint32_t pos, uint32_t len, const char *fmt, ...) {
    if (d->count == WAT_MAX_DIAGS) {
        d->more = true;
        return -1;
    }
    struct wat_diag *diag = &d->list[d->count++];
    *diag = (struct wat_diag){.pos = pos, .len = len};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(diag->text, sizeof(diag->text), fmt, ap);
    va_end(ap);
    return -1;
}

int wat_hint(struct wat_diags *d, const char *fmt, ...) {
    if (d->count == 0 || d->more)
        return -1;
    struct wat_diag *diag = &d->list[d->count - 1];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(diag->hint, sizeof(diag->hint), fmt, ap);
    va_end(ap);
    return -1;
}

static bool starts_character(char c) {
    return ((unsigned char)c & 0xc0) != 0x80;
}

struct wat_line wat_line_at(const char *src, size_t len, uint32_t pos) {
    struct wat_line l = {.line = 1, .col = 1};
    if (pos > len)
        pos = (uint32_t)len;
    for (uint32_t i = 0; i < pos; i++) {
        if (src[i] == '\n') {
            l.line++;
            l.start = i + 1;
        }
    }
    for (uint32_t i = l.start; i < pos; i++)
        l.col += starts_character(src[i]);
    for (l.end = l.start; l.end < len && src[l.end] != '\n'; l.end++)
        ;
    return l;
}

/* Of a long line only the part around the error is shown, such as in a generated one-line file. */
enum { SHOWN_BEFORE = 70, SHOWN_BYTES = 140 };

/* The source is untrusted: control bytes must not reach a terminal. */
static char shown(char c) {
    return (unsigned char)c < 0x20 || c == 0x7f ? ' ' : c;
}

static bool print_source(const struct wat_line *l, uint32_t from, uint32_t to, const char *src,
                         struct buf *out) {
    if (!buf_addf(out, "%5u | %s", l->line, from > l->start ? "..." : ""))
        return false;
    for (uint32_t i = from; i < to; i++)
        if (!buf_add(out, &(char){shown(src[i])}, 1))
            return false;
    return buf_addf(out, "%s\n", to < l->end ? "..." : "");
}

static bool print_caret(const struct wat_diag *d, uint32_t from, uint32_t to, bool cut,
                        const char *src, struct buf *out) {
    if (!buf_addf(out, "      | %s", cut ? "   " : ""))
        return false;
    for (uint32_t i = from; i < d->pos && i < to; i++)
        if (starts_character(src[i]) && !buf_add(out, " ", 1))
            return false;
    uint32_t end = d->pos + (d->len ? d->len : 1);
    for (uint32_t i = d->pos; i < end && (i == d->pos || i < to); i++)
        if ((i == d->pos || starts_character(src[i])) && !buf_add(out, "^", 1))
            return false;
    return buf_add(out, "\n", 1);
}

bool wat_diag_print(const struct wat_diag *d, const char *file, const char *src, size_t len,
                    struct buf *out) {
    struct wat_line l = wat_line_at(src, len, d->pos);
    uint32_t from = l.start, to = l.end;
    /*
     * The line is cut between characters. Text that is not UTF-8 may have no such place, so both
     * searches are bounded.
     */
    if (d->pos - from > SHOWN_BEFORE)
        for (from = d->pos - SHOWN_BEFORE; from < d->pos && !starts_character(src[from]); from++)
            ;
    if (to - from > SHOWN_BYTES)
        for (to = from + SHOWN_BYTES; to > d->pos && !starts_character(src[to]); to--)
            ;
    return buf_addf(out, "%s:%u:%u: error: %s\n", file, l.line, l.col, d->text) &&
           print_source(&l, from, to, src, out) &&
           print_caret(d, from, to, from > l.start, src, out) &&
           (!d->hint[0] || buf_addf(out, "  hint: %s\n", d->hint));
}
