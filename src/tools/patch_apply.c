/* Applies the hunks of a patch to the text of one file. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/amount.h"
#include "base/defer.h"
#include "tools/edit.h"
#include "tools/patch_text.h"

enum { HINT_TEXT_MAX = 64 << 10 };

/* A line of the file, without its newline. */
struct file_line {
    const char *s;
    size_t n;
};

struct applying {
    struct patch *p;
    const struct patch_file *f;
    const struct buf *text;
    struct file_line *lines;
    size_t count;
    size_t at; /* the first line that is not in the output yet */
    bool crlf; /* the lines of the file end with \r\n */
    struct buf out;
    struct patch_counts counts;
};

static void split_lines(struct applying *a) {
    const char *s = a->text->data, *end = s + a->text->len;
    size_t room = 1;
    for (const char *p = s; (p = memchr(p, '\n', (size_t)(end - p))); p++)
        room++;
    a->lines = xcalloc(room, sizeof(*a->lines));
    while (s < end) {
        const char *newline = memchr(s, '\n', (size_t)(end - s));
        size_t n = (size_t)((newline ? newline : end) - s);
        a->lines[a->count++] = (struct file_line){s, n};
        s += n + (newline != NULL);
    }
    a->crlf = a->count && a->lines[0].n && a->lines[0].s[a->lines[0].n - 1] == '\r';
}

/* ---- finding the place of a hunk ---- */

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static size_t without_blanks(const char *s, size_t n) {
    while (n && is_blank(s[n - 1]))
        n--;
    return n;
}

static void patch_spend(struct applying *a, uint64_t work) {
    a->p->work -= work < a->p->work ? work : a->p->work;
}

static bool same_line(struct applying *a, const struct patch_line *l, struct file_line f,
                      bool loose) {
    size_t ln = loose ? without_blanks(l->s, l->n) : l->n;
    size_t fn = loose ? without_blanks(f.s, f.n) : f.n;
    patch_spend(a, 1 + (l->n - ln) + (f.n - fn) + (ln == fn ? ln : 0));
    return ln == fn && memcmp(l->s, f.s, ln) == 0;
}

/* True if the old lines of the hunk are in the file from line `start` on. Lines that the hunk adds
 * are work too: a hunk may have many, and is tried at each line. */
static bool hunk_is_at(struct applying *a, const struct patch_hunk *h, size_t start, bool loose) {
    size_t at = start;
    for (size_t i = 0; i < h->count; i++) {
        const struct patch_line *l = &a->p->lines[h->first + i];
        if (l->sign == '+') {
            patch_spend(a, 1);
            continue;
        }
        if (at >= a->count || !same_line(a, l, a->lines[at], loose))
            return false;
        at++;
    }
    return !h->at_end || at == a->count;
}

static size_t old_lines(const struct applying *a, const struct patch_hunk *h) {
    size_t n = 0;
    for (size_t i = 0; i < h->count; i++)
        n += a->p->lines[h->first + i].sign != '+';
    return n;
}

/* Tries the line `near` first, then the lines around it, from line `from` on. */
static bool hunk_near(struct applying *a, const struct patch_hunk *h, size_t from, size_t near,
                      bool loose, size_t *ret) {
    if (near > a->count)
        near = a->count;
    if (near < from)
        near = from;
    for (size_t d = 0; a->p->work && (near + d < a->count || d <= near - from); d++) {
        bool below = near + d < a->count && hunk_is_at(a, h, near + d, loose);
        bool above = !below && d <= near - from && hunk_is_at(a, h, near - d, loose);
        *ret = below ? near + d : near - d;
        if (below || above)
            return true;
    }
    return false;
}

static size_t hunk_places(struct applying *a, const struct patch_hunk *h, size_t from, bool loose,
                          size_t *ret) {
    size_t found = 0;
    for (size_t i = from; i < a->count && a->p->work && found < 2; i++)
        if (hunk_is_at(a, h, i, loose) && !found++)
            *ret = i;
    return found;
}

/* Fails with the lines of the file that are most similar to those of the hunk. */
static int hunk_missing(struct applying *a, const struct patch_hunk *h, size_t number,
                        struct buf *hint, struct err *err) {
    struct buf old DEFER(buf_done) = BUF(HINT_TEXT_MAX);
    if (!a->p->work)
        return err_set(err, ERR_LIMIT,
                       "file '%.150s': hunk %zu cannot be found in time; use smaller patches",
                       a->f->path, number);
    for (size_t i = 0; i < h->count; i++) {
        const struct patch_line *l = &a->p->lines[h->first + i];
        if (l->sign != '+' && (!buf_add(&old, l->s, l->n) || !buf_add(&old, "\n", 1)))
            break;
    }
    if (old.data && !memchr(old.data, 0, old.len) && a->text->len)
        edit_nearest(a->text, old.data, hint);
    err_set(err, ERR_NOT_FOUND, "file '%.150s': the lines of hunk %zu are not in the file",
            a->f->path, number);
    return err_remedy(err, "the unchanged and removed lines must match the file; read it again");
}

static int hunk_unclear(const struct applying *a, size_t number, struct err *err) {
    err_set(err, ERR_EXISTS, "file '%.150s': the lines of hunk %zu occur several times", a->f->path,
            number);
    return err_remedy(err, "add unchanged lines, or a line @@ TEXT with a line above the hunk");
}

/* Finds the anchor, a line above the hunk. */
static int find_anchor(struct applying *a, const struct patch_hunk *h, size_t *ret,
                       struct err *err) {
    const struct patch_line anchor = {.s = h->anchor, .n = h->anchor_n};
    for (size_t i = a->at; i < a->count && a->p->work; i++) {
        struct file_line l = a->lines[i];
        while (l.n && is_blank(l.s[0]))
            l = (struct file_line){l.s + 1, l.n - 1};
        patch_spend(a, a->lines[i].n - l.n);
        if (same_line(a, &anchor, l, true)) {
            *ret = i;
            return 0;
        }
    }
    err_set(err, ERR_NOT_FOUND, "file '%.150s': the line '%.*s' behind @@ is not in the file",
            a->f->path, (int)(h->anchor_n < 80 ? h->anchor_n : 80), h->anchor);
    return err_remedy(err, "write a whole line of the file behind @@, or only @@");
}

/* Finds where a hunk without old lines inserts its lines. */
static int insert_place(const struct applying *a, const struct patch_hunk *h, size_t anchor,
                        size_t *ret, struct err *err) {
    size_t at = h->anchor ? anchor + 1 : h->old_line ? (size_t)h->old_line - 1 : a->count;
    if (at < a->at || at > a->count)
        return err_set(err, ERR_NOT_FOUND, "file '%.150s' has only %zu lines", a->f->path,
                       a->count);
    *ret = at;
    return 0;
}

static int hunk_place(struct applying *a, const struct patch_hunk *h, size_t number, size_t *ret,
                      struct buf *hint, struct err *err) {
    size_t from = a->at;
    if (h->anchor && find_anchor(a, h, &from, err) < 0)
        return -1;
    if (!old_lines(a, h))
        return insert_place(a, h, from, ret, err);
    for (int loose = 0; loose < 2; loose++) {
        if (h->old_line) {
            if (hunk_near(a, h, from, (size_t)h->old_line - 1, loose, ret))
                return 0;
            continue;
        }
        size_t found = hunk_places(a, h, from, loose, ret);
        if (found == 1 || (found && (h->anchor || h->at_end)))
            return 0;
        if (found)
            return hunk_unclear(a, number, err);
    }
    return hunk_missing(a, h, number, hint, err);
}

/* ---- the new text ---- */

/* A line that was the last one, without a newline, may now be followed by another line. */
static bool put_start(struct buf *out) {
    return !out->len || out->data[out->len - 1] == '\n' || buf_add(out, "\n", 1);
}

static bool put_old(struct applying *a, size_t i) {
    const char *end = a->text->data + a->text->len;
    struct file_line l = a->lines[i];
    bool newline = l.s + l.n < end;
    return put_start(&a->out) && buf_add(&a->out, l.s, l.n + newline);
}

static bool put_new(struct applying *a, const struct patch_line *l) {
    bool cr = a->crlf && !(l->n && l->s[l->n - 1] == '\r');
    return put_start(&a->out) && buf_add(&a->out, l->s, l->n) &&
           (l->open || buf_add(&a->out, cr ? "\r\n" : "\n", cr ? 2 : 1));
}

static bool put_hunk_lines(struct applying *a, const struct patch_hunk *h, size_t start) {
    while (a->at < start)
        if (!put_old(a, a->at++))
            return false;
    for (size_t i = 0; i < h->count; i++) {
        const struct patch_line *l = &a->p->lines[h->first + i];
        a->counts.added += l->sign == '+';
        a->counts.removed += l->sign == '-';
        if (l->sign == '+' && !put_new(a, l))
            return false;
        if (l->sign == ' ' && !put_old(a, a->at))
            return false;
        a->at += l->sign != '+';
    }
    return true;
}

static int apply_hunks(struct applying *a, struct buf *hint, struct err *err) {
    bool fits = true;
    for (size_t i = 0; fits && i < a->f->count; i++) {
        const struct patch_hunk *h = &a->p->hunks[a->f->first + i];
        size_t start = 0;
        if (hunk_place(a, h, i + 1, &start, hint, err) < 0)
            return -1;
        fits = put_hunk_lines(a, h, start);
    }
    while (fits && a->at < a->count)
        fits = put_old(a, a->at++);
    if (fits)
        return 0;
    char max[AMOUNT_SIZE];
    amount_size(a->out.max, max);
    return err_set(err, ERR_LIMIT, "file '%.150s' would become larger than %s", a->f->path, max);
}

int patch_apply(struct patch *p, const struct patch_file *f, struct buf *text,
                struct patch_counts *ret, struct buf *hint, struct err *err) {
    if (!text->data && !buf_add(text, "", 0))
        return err_set(err, ERR_LIMIT, "out of memory");
    struct applying a = {.p = p, .f = f, .text = text, .out = BUF(text->max)};
    split_lines(&a);
    int r = apply_hunks(&a, hint, err);
    free(a.lines);
    if (r == 0) {
        struct buf old = *text;
        *text = a.out;
        a.out = old;
        *ret = a.counts;
    }
    buf_done(&a.out);
    return r;
}
