#include "base/text/needles.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

bool needles_add_beginning(struct needles *n, const char *s, size_t len, size_t least) {
    for (size_t i = 0; i < n->count; i++)
        if (n->list[i].n == len && memcmp(n->list[i].s, s, len) == 0)
            return true;
    if (len == 0 || len > NEEDLE_MAX || n->count == NEEDLES_MAX)
        return false;
    char *copy = xmalloc(len);
    memcpy(copy, s, len);
    n->list = xrealloc(n->list, n->count + 1, sizeof(*n->list));
    n->list[n->count++] = (struct needle){copy, len, least};
    n->first[(unsigned char)s[0]] = true;
    return true;
}

bool needles_add(struct needles *n, const char *s, size_t len) {
    return needles_add_beginning(n, s, len, len);
}

void needles_done(struct needles *n) {
    for (size_t i = 0; i < n->count; i++) {
        explicit_bzero(n->list[i].s, n->list[i].n);
        free(n->list[i].s);
    }
    free(n->list);
    *n = (struct needles){.count = 0};
}

static size_t common(const struct needle *t, const char *at, size_t left) {
    size_t most = t->n < left ? t->n : left, i = 0;
    while (i < most && t->s[i] == at[i])
        i++;
    return i;
}

/* Returns the length of the longest match at `at`; 0: none. *ret_open: more bytes could make a
 * match, or a longer one. */
static size_t needles_look(const struct needles *n, const char *at, size_t left, bool *ret_open) {
    size_t longest = 0;
    *ret_open = false;
    for (size_t i = 0; i < n->count; i++) {
        const struct needle *t = &n->list[i];
        size_t same = t->s[0] == *at ? common(t, at, left) : 0;
        if (same >= t->least && same > longest)
            longest = same;
        *ret_open |= same == left && same < t->n;
    }
    return longest;
}

static bool put_stars(struct buf *out, size_t n) {
    static const char stars[] = "****************************************************************";
    for (size_t part; n; n -= part) {
        part = n < sizeof(stars) - 1 ? n : sizeof(stars) - 1;
        if (!buf_add(out, stars, part))
            return false;
    }
    return true;
}

/* Counts the bytes before the first byte that may begin a match. */
static size_t plain(const struct needles *n, const char *at, size_t left) {
    size_t i = 0;
    while (i < left && !n->first[(unsigned char)at[i]])
        i++;
    return i;
}

int needles_feed(const struct needles *n, struct buf *carry, const char *piece, size_t len,
                 bool end, struct buf *out) {
    int found = 0;
    size_t at = 0;
    if (len && !buf_add(carry, piece, len))
        return -1;
    while (at < carry->len) {
        bool open;
        size_t skip = plain(n, carry->data + at, carry->len - at);
        if (skip && !buf_add(out, carry->data + at, skip))
            return -1;
        at += skip;
        if (at == carry->len)
            break;
        size_t hit = needles_look(n, carry->data + at, carry->len - at, &open);
        if (open && !end)
            break;
        if (!(hit ? put_stars(out, hit) : buf_add(out, carry->data + at, 1)))
            return -1;
        found += hit > 0;
        at += hit ? hit : 1;
    }
    if (at) {
        memmove(carry->data, carry->data + at, carry->len - at);
        explicit_bzero(carry->data + carry->len - at, at);
        carry->len -= at;
    }
    return found;
}
