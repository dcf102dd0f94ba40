#include "tools/edit.h"

#include <stdlib.h>
#include <string.h>

#include "base/amount.h"
#include "base/defer.h"

enum {
    CONTEXT = 3,
    NEAREST = 3,
    SHOWN_LINES = 12,
    SHOWN_BYTES = 400,
    SCORE_BYTES = 512,
    HUNKS_MAX = 20
};

/* ---- lines ---- */

struct line {
    const char *s;
    size_t n; /* length without the line end */
};

/* Reads the line that starts at *at and moves *at behind it. False: there are no more lines. */
static bool next_line(const char *text, size_t len, size_t *at, struct line *ret) {
    if (*at >= len)
        return false;
    const char *end = memchr(text + *at, '\n', len - *at);
    ret->s = text + *at;
    ret->n = end ? (size_t)(end - ret->s) : len - *at;
    *at += ret->n + (end ? 1 : 0);
    return true;
}

static size_t line_start(const char *text, size_t at) {
    while (at && text[at - 1] != '\n')
        at--;
    return at;
}

static size_t line_number(const char *text, size_t at) {
    size_t n = 1;
    for (size_t i = 0; i < at; i++)
        n += text[i] == '\n';
    return n;
}

/* The start of the line that is `lines` lines above the line of `at`. */
static size_t lines_up(const char *text, size_t at, size_t lines) {
    at = line_start(text, at);
    while (at && lines--)
        at = line_start(text, at - 1);
    return at;
}

/* The end of the line that contains `at` and of `lines` more lines. */
static size_t lines_down(const char *text, size_t len, size_t at, size_t lines) {
    struct line skipped;
    size_t end = line_start(text, at);
    for (size_t i = 0; i <= lines && next_line(text, len, &end, &skipped); i++) {
    }
    return end;
}

static void put_lines(struct buf *out, char sign, const char *text, size_t from, size_t to) {
    struct line line;
    while (from < to && next_line(text, to, &from, &line))
        if (!buf_addf(out, "%c", sign) || !buf_add(out, line.s, line.n) || !buf_add(out, "\n", 1))
            return; /* the diff is full: the rest is left out */
}

static size_t count_lines(const char *text, size_t from, size_t to) {
    struct line line;
    size_t n = 0;
    while (from < to && next_line(text, to, &from, &line))
        n++;
    return n;
}

/* The place of a replacement in the old and in the new text. */
struct place {
    size_t old_at, old_n, new_at, new_n;
};

/* Writes one replacement as a hunk. Returns the end of its lines in the old text. */
static size_t put_hunk(struct buf *diff, const struct buf *before, const struct buf *after,
                       const struct place *p) {
    size_t start = line_start(before->data, p->old_at);
    size_t first = lines_up(before->data, p->old_at, CONTEXT);
    size_t end = lines_down(before->data, before->len, p->old_at + p->old_n - 1, 0);
    size_t new_start = line_start(after->data, p->new_at);
    /* The rest of the last line is the same in both texts. */
    size_t new_end = p->new_at + p->new_n + (end - p->old_at - p->old_n);
    size_t tail = end < before->len ? lines_down(before->data, before->len, end, CONTEXT - 1) : end;
    size_t context = count_lines(before->data, first, start) + count_lines(before->data, end, tail);
    if (new_end > after->len)
        new_end = after->len;
    if (!buf_addf(diff, "@@ -%zu,%zu +%zu,%zu @@\n", line_number(before->data, first),
                  context + count_lines(before->data, start, end),
                  line_number(after->data, lines_up(after->data, p->new_at, CONTEXT)),
                  context + count_lines(after->data, new_start, new_end)))
        return end;
    put_lines(diff, ' ', before->data, first, start);
    put_lines(diff, '-', before->data, start, end);
    put_lines(diff, '+', after->data, new_start, new_end);
    put_lines(diff, ' ', before->data, end, tail);
    return end;
}

/* ---- the nearest match ---- */

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static struct line trimmed(struct line l) {
    while (l.n && is_space(l.s[0]))
        l = (struct line){l.s + 1, l.n - 1};
    while (l.n && is_space(l.s[l.n - 1]))
        l.n--;
    return l;
}

/* The set of adjacent byte pairs of a line, hashed, so false positives are possible. */
struct pairs {
    bool has[1 << 13];
    size_t n;
};

static unsigned pair_slot(const char *s) {
    return ((unsigned char)s[0] * 67u + (unsigned char)s[1] * 31u) & 0x1fff;
}

static void pairs_of(struct line l, struct pairs *ret) {
    *ret = (struct pairs){.n = l.n < SCORE_BYTES ? l.n : SCORE_BYTES};
    for (size_t i = 0; i + 1 < ret->n; i++)
        ret->has[pair_slot(l.s + i)] = true;
}

/* Similarity of two lines, 0 to 1000, by the byte pairs that they share. */
static unsigned likeness(const struct pairs *wanted, struct line l) {
    size_t n = l.n < SCORE_BYTES ? l.n : SCORE_BYTES, shared = 0;
    if (n < 2 || wanted->n < 2)
        return 0;
    for (size_t i = 0; i + 1 < n; i++)
        shared += wanted->has[pair_slot(l.s + i)];
    return (unsigned)(2000 * shared / (n + wanted->n - 2));
}

struct candidate {
    size_t at; /* start of the line */
    unsigned score;
};

static void keep_best(struct candidate best[NEAREST], struct candidate c) {
    for (size_t i = 0; i < NEAREST; i++)
        if (c.score > best[i].score) {
            struct candidate worse = best[i];
            best[i] = c;
            c = worse;
        }
}

/* The longest line of `old`, because it is the most specific. */
static struct line telling_line(const char *old_text) {
    size_t at = 0, len = strlen(old_text);
    struct line line = {old_text, 0}, longest = line;
    while (next_line(old_text, len, &at, &line))
        if (trimmed(line).n > longest.n)
            longest = trimmed(line);
    return longest;
}

static void show_place(struct buf *hint, const char *text, size_t len, size_t at, size_t lines) {
    struct line line;
    size_t number = line_number(text, at);
    for (size_t i = 0; i < lines && next_line(text, len, &at, &line); i++) {
        size_t n = line.n < SHOWN_BYTES ? line.n : SHOWN_BYTES;
        if (!buf_addf(hint, "%6zu\t%.*s\n", number + i, (int)n, line.s))
            return;
    }
}

void edit_nearest(const struct buf *text, const char *old_text, struct buf *hint) {
    struct candidate best[NEAREST] = {{0}};
    struct pairs wanted;
    struct line line;
    pairs_of(telling_line(old_text), &wanted);
    size_t lines = count_lines(old_text, 0, strlen(old_text));
    for (size_t at = 0, start = 0; next_line(text->data, text->len, &at, &line); start = at)
        keep_best(best, (struct candidate){start, likeness(&wanted, trimmed(line))});
    for (size_t i = 0; i < NEAREST && best[i].score > 300; i++) {
        if (!buf_addf(hint, "%snearest, line %zu:\n", i ? "\n" : "",
                      line_number(text->data, best[i].at)))
            return;
        show_place(hint, text->data, text->len, best[i].at,
                   lines < SHOWN_LINES ? lines : SHOWN_LINES);
    }
}

static void show_all(const struct buf *text, const char *old_text, struct buf *hint) {
    size_t n = strlen(old_text), shown = 0;
    for (const char *p = text->data; (p = strstr(p, old_text)) && shown < 2 * NEAREST;
         p += n, shown++)
        show_place(hint, text->data, text->len, line_start(text->data, (size_t)(p - text->data)),
                   1);
}

/* ---- replacing ---- */

static size_t occurrences(const char *text, const char *old_text) {
    size_t n = strlen(old_text), found = 0;
    for (const char *p = text; (p = strstr(p, old_text)); p += n)
        found++;
    return found;
}

static int edit_check(const struct buf *text, const struct edit_step *e, size_t number,
                      struct buf *hint, struct err *err) {
    if (!*e->old_text)
        return err_set(err, ERR_INVALID, "edit %zu: the text 'old' is empty", number);
    if (strcmp(e->old_text, e->new_text) == 0)
        return err_set(err, ERR_INVALID, "edit %zu: the texts 'old' and 'new' are the same",
                       number);
    size_t found = occurrences(text->data, e->old_text);
    if (found == e->count)
        return 0;
    if (!found) {
        edit_nearest(text, e->old_text, hint);
        err_set(err, ERR_NOT_FOUND, "edit %zu: the text 'old' does not occur in the file", number);
        return err_remedy(
            err, "'old' must match byte for byte, with its indentation; read the file again");
    }
    show_all(text, e->old_text, hint);
    err_set(err, ERR_EXISTS, "edit %zu: the text 'old' occurs %zu times, not %zu", number, found,
            e->count);
    return err_remedy(err, "add lines to 'old' until it is unique, or set 'count' to %zu", found);
}

/* Writes the text with all occurrences replaced. False: `after` is full. */
static bool replace(const struct buf *before, const struct edit_step *e, struct buf *after) {
    const char *at = before->data, *found;
    size_t old_n = strlen(e->old_text), new_n = strlen(e->new_text);
    for (; (found = strstr(at, e->old_text)); at = found + old_n)
        if (!buf_add(after, at, (size_t)(found - at)) || !buf_add(after, e->new_text, new_n))
            return false;
    return buf_add(after, at, before->len - (size_t)(at - before->data));
}

/* Replacements on lines of an earlier hunk are not shown again. */
static void put_hunks(struct buf *diff, const struct buf *before, const struct buf *after,
                      const struct edit_step *e) {
    struct place p = {.old_n = strlen(e->old_text), .new_n = strlen(e->new_text)};
    size_t shown = 0, hunks = 0;
    const char *found;
    for (size_t i = 0; (found = strstr(before->data + p.old_at, e->old_text)); i++) {
        p.old_at = (size_t)(found - before->data);
        p.new_at = p.old_at + i * p.new_n - i * p.old_n;
        if (p.old_at >= shown && hunks++ < HUNKS_MAX)
            shown = put_hunk(diff, before, after, &p);
        p.old_at += p.old_n;
    }
    if (hunks > HUNKS_MAX)
        (void)!buf_addf(diff, "[%zu more places]\n", hunks - HUNKS_MAX);
}

static int apply(struct buf *text, const struct edit_step *e, size_t number, struct buf *diff,
                 struct buf *hint, struct err *err) {
    struct buf after DEFER(buf_done) = BUF(text->max);
    if (edit_check(text, e, number, hint, err) < 0)
        return -1;
    if (!replace(text, e, &after)) {
        char max[AMOUNT_SIZE];
        amount_size(text->max, max);
        return err_set(err, ERR_LIMIT, "edit %zu: the file would become larger than %s", number,
                       max);
    }
    put_hunks(diff, text, &after, e);
    struct buf old = *text;
    *text = after;
    after = old;
    return 0;
}

int edit_apply(struct buf *text, const struct edit_step *steps, size_t count, struct buf *diff,
               struct buf *hint, struct err *err) {
    struct buf work DEFER(buf_done) = BUF(text->max);
    if (!buf_add(&work, text->data ? text->data : "", text->len))
        return err_set(err, ERR_LIMIT, "the file is too large for the tool edit");
    for (size_t i = 0; i < count; i++)
        if (apply(&work, &steps[i], i + 1, diff, hint, err) < 0)
            return -1;
    struct buf old = *text;
    *text = work;
    work = old;
    return 0;
}
