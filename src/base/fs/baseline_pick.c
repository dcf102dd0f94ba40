#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs/baseline.h"

/* A path that is wanted; `s` points into the list of the caller. */
struct wanted {
    const char *s;
    size_t n;
    bool below; /* also everything below it */
};

struct wanted_list {
    struct wanted *v;
    size_t count;
};

static int by_bytes_of(const void *a, const void *b) {
    const struct wanted *x = a, *y = b;
    int order = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

static size_t line_length(const char *at, const char *end) {
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    return (size_t)((newline ? newline : end) - at);
}

static struct wanted_list wanted_read(const char *paths, size_t n) {
    struct wanted_list ret = {0};
    size_t room = 0;
    for (const char *at = paths, *end = paths + n; at < end;) {
        size_t len = line_length(at, end);
        if (ret.count == room) {
            room = room ? 2 * room : 16;
            ret.v = xrealloc(ret.v, room, sizeof(*ret.v));
        }
        if (len > 2 && at[1] == ' ')
            ret.v[ret.count++] = (struct wanted){at + 2, len - 2, at[0] == '/'};
        at += len + 1;
    }
    if (ret.count)
        qsort(ret.v, ret.count, sizeof(*ret.v), by_bytes_of);
    return ret;
}

/* A path may be listed twice, if it was replaced while the list was made. */
static bool wanted_has(const struct wanted_list *w, const char *path, size_t n, bool whole) {
    const struct wanted key = {.s = path, .n = n};
    const struct wanted *at =
        w->count ? bsearch(&key, w->v, w->count, sizeof(key), by_bytes_of) : NULL;
    while (at && at > w->v && by_bytes_of(at - 1, &key) == 0)
        at--;
    for (; at && at < w->v + w->count && by_bytes_of(at, &key) == 0; at++)
        if (whole || at->below)
            return true;
    return false;
}

static bool is_picked(const struct wanted_list *w, const char *path, size_t n) {
    if ((n == 1 && path[0] == '.') || wanted_has(w, path, n, true))
        return true;
    for (size_t i = 0; i < n; i++)
        if (path[i] == '/' && wanted_has(w, path, i, false))
            return true;
    return false;
}

bool baseline_pick(const char *text, size_t n, const char *paths, size_t paths_n, struct buf *ret) {
    struct wanted_list w = wanted_read(paths, paths_n);
    bool fits = true;
    for (const char *at = text, *end = text + n; fits && at < end;) {
        size_t len = line_length(at, end);
        const char *path = at;
        for (int i = 0; path && i < 4; i++) {
            path = memchr(path, ' ', (size_t)(at + len - path));
            path = path ? path + 1 : NULL;
        }
        if (!path || is_picked(&w, path, (size_t)(at + len - path)))
            fits = buf_add(ret, at, len) && buf_add(ret, "\n", 1);
        at += len + 1;
    }
    free(w.v);
    return fits;
}
