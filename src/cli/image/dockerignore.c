#include "cli/image/dockerignore.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

enum { PART_MAX = 256, STARS_MAX = 4 };

void dockerignore_done(struct dockerignore *d) {
    arena_done(&d->arena);
    free(d->patterns);
    free(d->includes);
    *d = (struct dockerignore){0};
}

/* Writes the pattern without empty and "." parts; ".." removes a part. */
static char *ignore_clean(struct dockerignore *d, const char *s, size_t n) {
    char *text = arena_copy(&d->arena, s, n), *to = arena_alloc(&d->arena, n + 1);
    size_t len = 0;
    for (char *at = text; *(at += strspn(at, "/"));) {
        size_t part = strcspn(at, "/");
        if (part == 2 && strncmp(at, "..", 2) == 0) {
            while (len > 0 && to[--len] != '/')
                ;
        } else if (part != 1 || *at != '.') {
            if (len)
                to[len++] = '/';
            memcpy(to + len, at, part);
            len += part;
        }
        at += part;
    }
    to[len] = '\0';
    return to;
}

static size_t ignore_stars(const char *pattern) {
    size_t count = 0;
    for (const char *p = pattern; (p = strstr(p, "**")); p += 2)
        count++;
    return count;
}

/* Finds the next `**` that is only a part of a name, as in `**.log`; NULL: there is none. */
static const char *ignore_mixed(const char *pattern) {
    for (const char *p = pattern; (p = strstr(p, "**")); p += 2)
        if ((p > pattern && p[-1] != '/') || (p[2] && p[2] != '/'))
            return p;
    return NULL;
}

/*
 * Adds a pattern. A `**` within a name matches slashes too, so it stands for two patterns: `x**y`
 * is `x*y`, or `x*`, any number of directories, and `*y`.
 */
static int ignore_put(struct dockerignore *d, const char *pattern, bool includes, struct err *err) {
    const char *mixed = ignore_mixed(pattern);
    if (mixed) {
        int n = (int)(mixed - pattern);
        return ignore_put(d, arena_printf(&d->arena, "%.*s*%s", n, pattern, mixed + 2), includes,
                          err) < 0
                   ? -1
                   : ignore_put(d, arena_printf(&d->arena, "%.*s*/**/*%s", n, pattern, mixed + 2),
                                includes, err);
    }
    if (d->count == DOCKERIGNORE_PATTERNS_MAX)
        return err_set(err, ERR_LIMIT, ".dockerignore has more than %d patterns",
                       DOCKERIGNORE_PATTERNS_MAX);
    d->patterns[d->count] = pattern;
    d->includes[d->count++] = includes;
    d->has_includes |= includes;
    return 0;
}

static void ignore_trim(const char **s, size_t *n) {
    while (*n && strchr(" \t\r", (*s)[*n - 1]))
        --*n;
    while (*n && strchr(" \t", **s)) {
        ++*s;
        --*n;
    }
}

static int ignore_add(struct dockerignore *d, const char *s, size_t n, unsigned number,
                      struct err *err) {
    ignore_trim(&s, &n);
    if (n == 0 || *s == '#')
        return 0;
    bool includes = *s == '!';
    s += includes;
    n -= includes;
    ignore_trim(&s, &n);
    const char *pattern = ignore_clean(d, s, n);
    if (ignore_stars(pattern) > STARS_MAX)
        return err_set(err, ERR_LIMIT, "line %u of .dockerignore has more than %d `**`", number,
                       STARS_MAX);
    return *pattern ? ignore_put(d, pattern, includes, err) : 0;
}

int dockerignore_read(const char *bytes, size_t len, struct dockerignore *ret, struct err *err) {
    unsigned number = 1;
    *ret = (struct dockerignore){0};
    if (len > DOCKERIGNORE_BYTES_MAX || memchr(bytes, '\0', len))
        return err_set(err, ERR_LIMIT, ".dockerignore is not a text of at most %d KiB",
                       DOCKERIGNORE_BYTES_MAX >> 10);
    ret->patterns = xcalloc(DOCKERIGNORE_PATTERNS_MAX, sizeof(*ret->patterns));
    ret->includes = xcalloc(DOCKERIGNORE_PATTERNS_MAX, sizeof(*ret->includes));
    for (size_t at = len >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; at < len;
         number++) {
        const char *end = memchr(bytes + at, '\n', len - at);
        size_t n = end ? (size_t)(end - bytes) - at : len - at;
        if (ignore_add(ret, bytes + at, n, number, err) < 0) {
            dockerignore_done(ret);
            return -1;
        }
        at += n + 1;
    }
    return 0;
}

/* Compares one part of a pattern with one part of a path. */
static bool ignore_part(const char *pattern, size_t m, const char *path, size_t n) {
    char a[PART_MAX + 1], b[PART_MAX + 1];
    if (m > PART_MAX || n > PART_MAX)
        return false;
    snprintf(a, sizeof(a), "%.*s", (int)m, pattern);
    snprintf(b, sizeof(b), "%.*s", (int)n, path);
    return fnmatch(a, b, 0) == 0;
}

/* True if the pattern matches the path or a directory above it. */
static bool ignore_matches(const char *pattern, const char *path) {
    if (!*pattern)
        return true; /* the rest of the path is below what the pattern names */
    size_t m = strcspn(pattern, "/"), n = strcspn(path, "/");
    const char *next = pattern + m + (pattern[m] == '/');
    if (m == 2 && strncmp(pattern, "**", 2) == 0) {
        if (!*next)
            return *path != '\0';
        for (const char *at = path;; at++) {
            if (ignore_matches(next, at))
                return true;
            at += strcspn(at, "/");
            if (!*at)
                return false;
        }
    }
    return *path && ignore_part(pattern, m, path, n) &&
           ignore_matches(next, path + n + (path[n] == '/'));
}

bool dockerignore_matches(const struct dockerignore *d, const char *path) {
    bool ignored = false;
    for (size_t i = 0; i < d->count; i++)
        if (ignored == d->includes[i] && ignore_matches(d->patterns[i], path))
            ignored = !ignored;
    return ignored;
}
