#include "packages/rows.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/fdio.h"
#include "base/hex.h"

enum { OUT_PIECE = 64 << 10 };

void package_rows_done(struct package_rows *r) {
    for (size_t i = 0; i < r->count; i++)
        free(r->v[i].path);
    free(r->v);
    *r = (struct package_rows){.v = NULL};
}

static bool is_dots(const char *segment, size_t n) {
    return n == 0 || (n == 1 && segment[0] == '.') || (n == 2 && memcmp(segment, "..", 2) == 0);
}

bool package_path_is_plain(const char *path, size_t n) {
    if (n < 2 || n > PACKAGE_PATH_MAX || path[0] != '/')
        return false;
    for (size_t i = 0; i < n; i++)
        if (path[i] <= ' ' || path[i] > '~' || strchr("%\\?#;", path[i]))
            return false;
    for (size_t at = 1; at <= n;) {
        const char *slash = memchr(path + at, '/', n - at);
        size_t length = slash ? (size_t)(slash - path) - at : n - at;
        if (is_dots(path + at, length))
            return false;
        at += length + 1;
    }
    return true;
}

static bool digest_put(char ret[PACKAGE_DIGEST_SIZE], const char *hex, size_t digits) {
    char low[129];
    if (digits != 64 && digits != 128)
        return false;
    for (size_t i = 0; i < digits; i++)
        low[i] = hex[i] >= 'A' && hex[i] <= 'F' ? (char)(hex[i] + 32) : hex[i];
    low[digits] = '\0';
    snprintf(ret, PACKAGE_DIGEST_SIZE, "%s:%s", digits == 64 ? "sha256" : "sha512", low);
    return hex_is(low, digits);
}

bool package_rows_add(struct package_rows *r, const char *above, const char *name, size_t n,
                      const char *hex, size_t digits) {
    struct package_row row;
    size_t before = strlen(above);
    if (n > PACKAGE_PATH_MAX || before > PACKAGE_PATH_MAX || memchr(name, '\0', n) ||
        !digest_put(row.digest, hex, digits))
        return true;
    row.path = xmalloc(before + n + 1);
    memcpy(row.path, above, before);
    memcpy(row.path + before, name, n);
    row.path[before + n] = '\0';
    if (!package_path_is_plain(row.path, before + n)) {
        free(row.path);
        return true;
    }
    if (r->count == PACKAGE_ROWS_MAX) {
        free(row.path);
        return false;
    }
    if (r->count == r->size) {
        r->size = r->size ? 2 * r->size : 256;
        r->v = xrealloc(r->v, r->size, sizeof(*r->v));
    }
    r->v[r->count++] = row;
    return true;
}

static int compare_rows(const void *a, const void *b) {
    return strcmp(((const struct package_row *)a)->path, ((const struct package_row *)b)->path);
}

void package_rows_sort(struct package_rows *r) {
    size_t kept = 0;
    if (r->count)
        qsort(r->v, r->count, sizeof(*r->v), compare_rows);
    for (size_t from = 0, end; from < r->count; from = end) {
        bool agree = true;
        for (end = from + 1; end < r->count && compare_rows(&r->v[from], &r->v[end]) == 0; end++) {
            agree &= strcmp(r->v[from].digest, r->v[end].digest) == 0;
            free(r->v[end].path);
        }
        if (agree)
            r->v[kept++] = r->v[from];
        else
            free(r->v[from].path);
    }
    r->count = kept;
}

int package_rows_write(const struct package_rows *r, int fd) {
    struct buf out = BUF(2 * OUT_PIECE);
    int status = 0;
    for (size_t i = 0; i < r->count && status == 0; i++) {
        if (!buf_addf(&out, "%s %s\n", r->v[i].path, r->v[i].digest))
            status = -ENOMEM;
        else if (out.len >= OUT_PIECE || i + 1 == r->count) {
            status = write_all(fd, out.data, out.len);
            out.len = 0;
        }
    }
    buf_done(&out);
    return status;
}
