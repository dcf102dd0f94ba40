#include "base/text/textdiff.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"

enum {
    EFFORT = 512, /* a search gives up after this many changed lines */
    LINES_MAX = 1 << 30,
};

static const char no_newline[] = "\\ No newline at end of file\n";

/* ---- lines ---- */

struct line {
    const char *s;
    size_t len; /* length with its '\n' */
};

struct text {
    struct line *lines;
    uint32_t *ids; /* equal lines of both texts have the same id */
    bool *changed;
    int32_t count;
};

static void text_done(struct text *t) {
    free(t->lines);
    free(t->ids);
    free(t->changed);
}

static size_t line_len(const char *s, size_t left) {
    const char *end = memchr(s, '\n', left);
    return end ? (size_t)(end - s) + 1 : left;
}

static bool textdiff_split(const char *s, size_t len, struct text *ret) {
    size_t count = 0;
    for (size_t at = 0; at < len; count++)
        at += line_len(s + at, len - at);
    if (count > LINES_MAX)
        return false;
    ret->lines = calloc(count + 1, sizeof(*ret->lines));
    ret->ids = calloc(count + 1, sizeof(*ret->ids));
    ret->changed = calloc(count + 1, sizeof(*ret->changed));
    if (!ret->lines || !ret->ids || !ret->changed)
        return false;
    for (size_t at = 0; at < len;) {
        struct line *l = &ret->lines[ret->count++];
        *l = (struct line){s + at, line_len(s + at, len - at)};
        at += l->len;
    }
    return true;
}

/* Gives equal lines the same id: the slot of the line in an open hash table. */
struct seen {
    struct line *slots;
    size_t mask;
};

static uint64_t hash_line(const struct line *l) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < l->len; i++)
        h = (h ^ (unsigned char)l->s[i]) * 0x100000001b3u;
    return h ^ h >> 29;
}

static void number_lines(struct seen *seen, struct text *t) {
    for (int32_t i = 0; i < t->count; i++) {
        const struct line *l = &t->lines[i];
        size_t at = hash_line(l) & seen->mask;
        while (seen->slots[at].s &&
               (seen->slots[at].len != l->len || memcmp(seen->slots[at].s, l->s, l->len) != 0))
            at = (at + 1) & seen->mask;
        seen->slots[at] = *l;
        t->ids[i] = (uint32_t)at;
    }
}

static bool number_both(struct text *a, struct text *b) {
    size_t size = 16;
    while (size < 2 * ((size_t)a->count + (size_t)b->count))
        size *= 2;
    struct line *slots DEFER_FREE = calloc(size, sizeof(*slots));
    struct seen seen = {slots, size - 1};
    if (!slots)
        return false;
    number_lines(&seen, a);
    number_lines(&seen, b);
    return true;
}

/* ---- shortest edit script (Myers, in linear space) ---- */

/* A range of lines in each of both texts. */
struct span {
    int32_t a, a_end, b, b_end;
};

/* The furthest line reached on each diagonal, searched from the start and from the end. */
struct reach {
    int32_t forward[2 * EFFORT + 3], backward[2 * EFFORT + 3];
};

struct search {
    const struct text *a, *b;
    struct reach reach;
};

static int32_t over(int32_t d, int32_t len) {
    return d > len ? d - len : 0;
}

/* Makes one more change on diagonal k, then follows equal lines. `from_end`: searches backwards. */
static int32_t go_far(const struct search *s, const struct span *p, const int32_t *v, int32_t d,
                      int32_t k, bool from_end, int32_t *ret_start) {
    int32_t n = p->a_end - p->a, m = p->b_end - p->b;
    bool down = k == -d || (k != d && v[k - 1] < v[k + 1]);
    int32_t x = down ? v[k + 1] : v[k - 1] + 1;
    *ret_start = x;
    const uint32_t *a = s->a->ids, *b = s->b->ids;
    for (; x < n && x - k < m; x++) {
        int32_t y = x - k;
        bool equal =
            from_end ? a[p->a_end - 1 - x] == b[p->b_end - 1 - y] : a[p->a + x] == b[p->b + y];
        if (!equal)
            break;
    }
    return x;
}

/* Finds the equal lines in the middle of a shortest edit script; false: none within EFFORT. */
static bool find_middle(struct search *s, const struct span *p, struct span *ret) {
    int32_t n = p->a_end - p->a, m = p->b_end - p->b, delta = n - m;
    int32_t *fv = s->reach.forward + EFFORT + 1, *bv = s->reach.backward + EFFORT + 1;
    fv[1] = bv[1] = 0;
    for (int32_t d = 0; d <= EFFORT; d++) {
        int32_t low = -(d - 2 * over(d, m)), high = d - 2 * over(d, n), start;
        for (int32_t k = low; k <= high; k += 2) {
            int32_t x = fv[k] = go_far(s, p, fv, d, k, false, &start), z = delta - k;
            if ((delta & 1) && z > -d && z < d && x + bv[z] >= n) {
                *ret = (struct span){p->a + start, p->a + x, p->b + start - k, p->b + x - k};
                return true;
            }
        }
        for (int32_t k = low; k <= high; k += 2) {
            int32_t x = bv[k] = go_far(s, p, bv, d, k, true, &start), z = delta - k;
            if (!(delta & 1) && z >= -d && z <= d && x + fv[z] >= n) {
                *ret = (struct span){p->a_end - x, p->a_end - start, p->b_end - (x - k),
                                     p->b_end - (start - k)};
                return true;
            }
        }
    }
    return false;
}

static void trim(const struct search *s, struct span *p) {
    const uint32_t *a = s->a->ids, *b = s->b->ids;
    while (p->a < p->a_end && p->b < p->b_end && a[p->a] == b[p->b])
        p->a++, p->b++;
    while (p->a < p->a_end && p->b < p->b_end && a[p->a_end - 1] == b[p->b_end - 1])
        p->a_end--, p->b_end--;
}

static void mark(bool *changed, int32_t from, int32_t to) {
    for (; from < to; from++)
        changed[from] = true;
}

/* Each half has at most half of the changes, so the recursion is not deep. */
static void compare(struct search *s, struct span p) {
    struct span middle;
    trim(s, &p);
    if (p.a < p.a_end && p.b < p.b_end && find_middle(s, &p, &middle)) {
        compare(s, (struct span){p.a, middle.a, p.b, middle.b});
        compare(s, (struct span){middle.a_end, p.a_end, middle.b_end, p.b_end});
        return;
    }
    mark(s->a->changed, p.a, p.a_end);
    mark(s->b->changed, p.b, p.b_end);
}

/* ---- hunks ---- */

static bool put_line(struct buf *out, char sign, const struct line *l) {
    bool ends = l->s[l->len - 1] == '\n';
    return buf_add(out, &sign, 1) && buf_add(out, l->s, l->len) &&
           (ends || (buf_add(out, "\n", 1) && buf_add(out, no_newline, sizeof(no_newline) - 1)));
}

/* Moves i and j past the changed lines at this place of both texts. */
static void skip_changed(const struct text *a, const struct text *b, int32_t *i, int32_t *j) {
    while (*i < a->count && a->changed[*i])
        ++*i;
    while (*j < b->count && b->changed[*j])
        ++*j;
}

static bool is_changed(const struct text *a, const struct text *b, int32_t i, int32_t j) {
    return (i < a->count && a->changed[i]) || (j < b->count && b->changed[j]);
}

/* Extends a hunk to its end: changes within 2 * context lines belong to the same hunk. */
static void end_of_hunk(const struct text *a, const struct text *b, int32_t context,
                        struct span *hunk) {
    int32_t i = hunk->a_end, j = hunk->b_end, equal = 0;
    while (i < a->count || j < b->count) {
        if (is_changed(a, b, i, j)) {
            skip_changed(a, b, &i, &j);
            hunk->a_end = i;
            hunk->b_end = j;
            equal = 0;
        } else if (equal++ < 2 * context) {
            i++, j++;
        } else {
            break;
        }
    }
    int32_t more = a->count - hunk->a_end < context ? a->count - hunk->a_end : context;
    hunk->a_end += more;
    hunk->b_end += more;
}

static bool put_hunk(struct buf *out, const struct text *a, const struct text *b,
                     const struct span *h) {
    int32_t olds = h->a_end - h->a, news = h->b_end - h->b, i = h->a, j = h->b;
    if (!buf_addf(out, "@@ -%" PRId32 ",%" PRId32 " +%" PRId32 ",%" PRId32 " @@\n",
                  h->a + (olds > 0), olds, h->b + (news > 0), news))
        return false;
    while (i < h->a_end || j < h->b_end) {
        bool ok;
        if (i < h->a_end && a->changed[i])
            ok = put_line(out, '-', &a->lines[i++]);
        else if (j < h->b_end && b->changed[j])
            ok = put_line(out, '+', &b->lines[j++]);
        else
            ok = (j++, put_line(out, ' ', &a->lines[i++]));
        if (!ok)
            return false;
    }
    return true;
}

static bool put_hunks(struct buf *out, const struct text *a, const struct text *b,
                      int32_t context) {
    int32_t i = 0, j = 0;
    while (i < a->count || j < b->count) {
        if (!is_changed(a, b, i, j)) {
            i++, j++;
            continue;
        }
        int32_t before = i < context ? i : context;
        struct span hunk = {i - before, i, j - before, j};
        end_of_hunk(a, b, context, &hunk);
        if (!put_hunk(out, a, b, &hunk))
            return false;
        i = hunk.a_end;
        j = hunk.b_end;
    }
    return true;
}

static void textdiff_count(const struct text *a, const struct text *b, struct textdiff_count *ret) {
    *ret = (struct textdiff_count){0};
    for (int32_t i = 0; i < a->count; i++)
        ret->removed += a->changed[i];
    for (int32_t j = 0; j < b->count; j++)
        ret->added += b->changed[j];
}

bool textdiff(struct buf *out, const char *a_text, size_t a_len, const char *b_text, size_t b_len,
              unsigned context, struct textdiff_count *ret) {
    struct text a DEFER(text_done) = {0}, b DEFER(text_done) = {0};
    struct search *s DEFER_FREE = calloc(1, sizeof(*s));
    size_t len = out->len;
    if (!s || !textdiff_split(a_text, a_len, &a) || !textdiff_split(b_text, b_len, &b) ||
        !number_both(&a, &b))
        return false;
    s->a = &a;
    s->b = &b;
    compare(s, (struct span){0, a.count, 0, b.count});
    textdiff_count(&a, &b, ret);
    if (put_hunks(out, &a, &b, context > 1000 ? 1000 : (int32_t)context))
        return true;
    out->len = len;
    if (out->data)
        out->data[len] = '\0';
    return false;
}

/* ---- applying hunks to a text ---- */

struct reader {
    const char *s;
    size_t left;
};

static bool take_text(struct reader *r, const char *text) {
    size_t n = strlen(text);
    if (r->left < n || memcmp(r->s, text, n) != 0)
        return false;
    r->s += n;
    r->left -= n;
    return true;
}

static bool textdiff_take_number(struct reader *r, uint64_t *ret) {
    size_t n = 0;
    for (*ret = 0; n < r->left && n < 10 && r->s[n] >= '0' && r->s[n] <= '9'; n++)
        *ret = *ret * 10 + (uint64_t)(r->s[n] - '0');
    r->s += n;
    r->left -= n;
    return n > 0;
}

static struct line take_line(struct reader *r) {
    struct line l = {r->s, line_len(r->s, r->left)};
    r->s += l.len;
    r->left -= l.len;
    return l;
}

struct hunk_head {
    uint64_t old_at, olds, new_at, news;
};

static bool take_head(struct reader *r, struct hunk_head *h) {
    return take_text(r, "@@ -") && textdiff_take_number(r, &h->old_at) && take_text(r, ",") &&
           textdiff_take_number(r, &h->olds) && take_text(r, " +") &&
           textdiff_take_number(r, &h->new_at) && take_text(r, ",") &&
           textdiff_take_number(r, &h->news) && take_text(r, " @@\n");
}

/* Takes a line of a hunk without its sign, and without its '\n' if the text has none there. */
static bool take_hunk_line(struct reader *r, char *ret_sign, struct line *ret) {
    if (r->left < 2)
        return false;
    *ret_sign = *r->s;
    r->s++;
    r->left--;
    *ret = take_line(r);
    if (ret->s[ret->len - 1] != '\n')
        return false;
    if (take_text(r, no_newline))
        ret->len--;
    return ret->len > 0;
}

/* A kept or removed line of the hunk must be equal to the next line of the old text. */
static bool apply_line(struct buf *out, struct reader *old, char sign, const struct line *l) {
    if (sign == '+')
        return buf_add(out, l->s, l->len);
    if (sign != '-' && sign != ' ')
        return false;
    struct line was = take_line(old);
    if (was.len != l->len || memcmp(was.s, l->s, l->len) != 0)
        return false;
    return sign == '-' || buf_add(out, l->s, l->len);
}

bool textdiff_apply(struct buf *out, const char *a, size_t a_len, const char *hunks, size_t len) {
    struct reader old = {a, a_len}, r = {hunks, len};
    uint64_t line = 1; /* number of the next line of the old text */
    while (r.left > 0) {
        struct hunk_head h;
        if (!take_head(&r, &h))
            return false;
        for (uint64_t until = h.old_at + (h.olds == 0); line < until; line++) {
            struct line same = take_line(&old);
            if (same.len == 0 || !buf_add(out, same.s, same.len))
                return false;
        }
        while (h.olds > 0 || h.news > 0) {
            char sign;
            struct line l;
            if (!take_hunk_line(&r, &sign, &l) || (sign != '+' && h.olds == 0) ||
                (sign != '-' && h.news == 0) || !apply_line(out, &old, sign, &l))
                return false;
            line += sign != '+';
            h.olds -= sign != '+';
            h.news -= sign != '-';
        }
    }
    return old.left == 0 || buf_add(out, old.s, old.left);
}
