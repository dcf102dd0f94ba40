#include "base/fs/baseline.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"

static int64_t ns_of(struct timespec t) {
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool is_plain(unsigned char c) {
    return c > ' ' && c < 0x7f && c != '%';
}

bool baseline_put_path(struct buf *to, const char *path) {
    bool fits = true;
    for (const char *p = path; fits && *p; p++)
        fits = is_plain((unsigned char)*p) ? buf_add(to, p, 1)
                                           : buf_addf(to, "%%%02X", (unsigned char)*p);
    return fits;
}

bool baseline_put(struct buf *to, const char *path, const struct stat *st) {
    size_t before = to->len;
    bool fits =
        st ? buf_addf(to, "%" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 " ", (uint64_t)st->st_ino,
                      (uint64_t)st->st_size, ns_of(st->st_mtim), ns_of(st->st_ctim))
           : buf_addf(to, "0 0 0 0 ");
    if (fits && baseline_put_path(to, path) && buf_add(to, "\n", 1))
        return true;
    to->len = before;
    if (to->data)
        to->data[before] = '\0';
    return false;
}

/* ---- reading ---- */

static int baseline_bad(const char *line, struct err *err) {
    return err_set(err, ERR_INVALID,
                   "line '%.*s' of the baseline (record of a directory's files) is malformed",
                   (int)strnlen(line, strcspn(line, "\n") < 80 ? strcspn(line, "\n") : 80), line);
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/*
 * Decodes the %XX of a path between `at` and `end` into *to, as a C string. Then *to points behind
 * that string. False: the path is malformed or empty.
 */
static bool baseline_decode(const char *at, const char *end, char **to) {
    char *start = *to, *out = start;
    for (; at < end; at++) {
        int high, low;
        if (is_plain((unsigned char)*at)) {
            *out++ = *at;
            continue;
        }
        if (*at != '%' || end - at < 3 || (high = hex_digit(at[1])) < 0 ||
            (low = hex_digit(at[2])) < 0 || (high | low) == 0 ||
            is_plain((unsigned char)(high << 4 | low)))
            return false;
        *out++ = (char)(high << 4 | low);
        at += 2;
    }
    *out++ = '\0';
    *to = out;
    return out - start > 1;
}

/* Reads a number and the space after it, and returns the end. NULL: malformed. */
static const char *number(const char *at, bool may_be_negative, int64_t *ret) {
    char *end;
    bool digit = *at >= '0' && *at <= '9', minus = *at == '-' && at[1] >= '1' && at[1] <= '9';
    errno = 0;
    if (!digit && !(minus && may_be_negative))
        return NULL;
    *ret = strtoll(at, &end, 10);
    return errno || *end != ' ' || (digit && *at == '0' && end != at + 1) ? NULL : end + 1;
}

static bool read_line(const char *line, const char *end, char **paths, struct baseline_file *ret) {
    int64_t v[4] = {0};
    const char *at = line;
    for (int i = 0; at && i < 4; i++)
        at = number(at, i > 1, &v[i]);
    *ret = (struct baseline_file){*paths, (uint64_t)v[0], (uint64_t)v[1], v[2], v[3]};
    return at && at < end && baseline_decode(at, end, paths);
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const struct baseline_file *)a)->path, ((const struct baseline_file *)b)->path);
}

/* Sorts lines of the same path by age. A later line has its path at a higher address. */
static int by_path_and_age(const void *a, const void *b) {
    const struct baseline_file *x = a, *y = b;
    int order = by_path(x, y);
    return order ? order : (x->path > y->path) - (x->path < y->path);
}

static void keep_newest(struct baseline *b) {
    size_t kept = 0;
    if (b->count)
        qsort(b->files, b->count, sizeof(*b->files), by_path_and_age);
    for (size_t i = 0; i < b->count; i++)
        if (i + 1 == b->count || strcmp(b->files[i].path, b->files[i + 1].path) != 0)
            b->files[kept++] = b->files[i];
    b->count = kept;
}

static size_t count_lines(const char *text, size_t n) {
    size_t lines = 0;
    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    return lines;
}

int baseline_read(const char *text, size_t n, struct baseline *ret, struct err *err) {
    size_t lines = count_lines(text, n);
    struct baseline b DEFER(baseline_done) = {.files = calloc(lines + 1, sizeof(*b.files)),
                                              .paths = malloc(n + 1)};
    char *copy DEFER_FREE = malloc(n + 1), *paths = b.paths;
    if (n > BASELINE_TEXT_MAX)
        return err_set(err, ERR_LIMIT,
                       "a baseline (record of a directory's files) has %zu bytes; the limit is %d "
                       "MiB",
                       n, BASELINE_TEXT_MAX >> 20);
    if (!b.files || !b.paths || !copy)
        return err_set(err, ERR_LIMIT, "out of memory for a baseline of %zu bytes", n);
    memcpy(copy, text, n);
    copy[n] = '\0';
    for (const char *line = copy, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        if (!end)
            return baseline_bad(line, err);
        if (strncmp(line, "cut\n", 4) == 0)
            b.cut = true;
        else if (line == copy && strncmp(line, BASELINE_HEAD, strlen(BASELINE_HEAD)) == 0)
            continue;
        else if (!read_line(line, end, &paths, &b.files[b.count++]))
            return baseline_bad(line, err);
    }
    if (strlen(copy) != n)
        return err_set(err, ERR_INVALID,
                       "a baseline (record of a directory's files) must not contain NUL bytes");
    keep_newest(&b);
    *ret = b;
    b = (struct baseline){0};
    return 0;
}

void baseline_done(struct baseline *b) {
    free(b->files);
    free(b->paths);
    *b = (struct baseline){0};
}

const struct baseline_file *baseline_find(const struct baseline *b, const char *path) {
    struct baseline_file key = {.path = path};
    return b->count ? bsearch(&key, b->files, b->count, sizeof(key), by_path) : NULL;
}

bool baseline_same(const struct baseline_file *f, const struct stat *st) {
    return f->inode && f->inode == (uint64_t)st->st_ino && f->size == (uint64_t)st->st_size &&
           f->mtime_ns == ns_of(st->st_mtim) && f->ctime_ns == ns_of(st->st_ctim);
}
