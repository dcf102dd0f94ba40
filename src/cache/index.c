#include "cache/index.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "base/sha256.h"

enum { INDEX_KEY = 32 };

static void index_prefix(char kind, const char *origin, char ret[INDEX_NAME_SIZE]) {
    char hex[SHA256_HEX];
    sha256_hex(origin, strlen(origin), hex);
    snprintf(ret, INDEX_NAME_SIZE, "%c-%.*s-", kind, INDEX_KEY, hex);
}

void index_name(char kind, const char *origin, const char *source, char ret[INDEX_NAME_SIZE]) {
    char hex[SHA256_HEX];
    index_prefix(kind, origin, ret);
    sha256_hex(source, strlen(source), hex);
    size_t n = strlen(ret);
    snprintf(ret + n, INDEX_NAME_SIZE - n, "%.*s", INDEX_KEY, hex);
}

bool index_is_of(int dir, const char *name, const char *digest) {
    char head[INDEX_HEAD + 2];
    int fd DEFER_CLOSE = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = fd < 0 ? -1 : pread(fd, head, INDEX_HEAD, 0);
    return n == INDEX_HEAD && memcmp(head, "# ", 2) == 0 &&
           memcmp(head + 2, digest, INDEX_HEAD - 3) == 0;
}

/* An index in memory. */
struct mapped {
    const char *text;
    size_t n;
};

static struct mapped index_map(int dir, const char *name) {
    struct stat st;
    int fd DEFER_CLOSE = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size <= INDEX_HEAD)
        return (struct mapped){NULL, 0};
    void *text = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    return text == MAP_FAILED ? (struct mapped){NULL, 0}
                              : (struct mapped){text, (size_t)st.st_size};
}

static void index_unmap(struct mapped *m) {
    if (m->text)
        munmap((void *)m->text, m->n);
}

/* One row of the text. */
struct index_row {
    const char *path, *digest, *next;
    size_t path_bytes, digest_bytes;
};

static bool row_at(const struct mapped *m, size_t at, struct index_row *ret) {
    const char *end = memchr(m->text + at, '\n', m->n - at);
    const char *blank = end ? memchr(m->text + at, ' ', (size_t)(end - m->text) - at) : NULL;
    if (!blank)
        return false;
    *ret = (struct index_row){.path = m->text + at, .digest = blank + 1, .next = end + 1};
    ret->path_bytes = (size_t)(blank - ret->path);
    ret->digest_bytes = (size_t)(end - ret->digest);
    return ret->digest_bytes < DIGEST_SIZE;
}

static int compare_path(const struct index_row *row, const char *path) {
    size_t n = strlen(path), less = row->path_bytes < n ? row->path_bytes : n;
    int order = memcmp(row->path, path, less);
    return order ? order : (row->path_bytes > n) - (row->path_bytes < n);
}

static bool row_take(const struct index_row *row, char ret[DIGEST_SIZE]) {
    memcpy(ret, row->digest, row->digest_bytes);
    ret[row->digest_bytes] = '\0';
    return digest_is_valid(ret);
}

/* Binary search: `low` and `high` are offsets of the beginnings of rows. */
static bool mapped_find(const struct mapped *m, const char *path, char ret[DIGEST_SIZE]) {
    size_t low = INDEX_HEAD, high = m->n;
    while (low < high) {
        struct index_row row;
        size_t at = low + (high - low) / 2;
        while (at > low && m->text[at - 1] != '\n')
            at--;
        if (!row_at(m, at, &row))
            return false;
        int order = compare_path(&row, path);
        if (order == 0)
            return row_take(&row, ret);
        if (order < 0)
            low = (size_t)(row.next - m->text);
        else
            high = at;
    }
    return false;
}

static bool mapped_find_by_digest(const struct mapped *m, const char *above, const char *digest,
                                  char ret_path[CACHE_PATH_SIZE]) {
    struct index_row row;
    size_t n = strlen(above);
    for (size_t at = INDEX_HEAD; at < m->n && row_at(m, at, &row);
         at = (size_t)(row.next - m->text)) {
        char found[DIGEST_SIZE];
        if (row.path_bytes > n && row.path_bytes < CACHE_PATH_SIZE &&
            memcmp(row.path, above, n) == 0 && !memchr(row.path + n, '/', row.path_bytes - n) &&
            row_take(&row, found) && strcmp(found, digest) == 0) {
            snprintf(ret_path, CACHE_PATH_SIZE, "%.*s", (int)row.path_bytes, row.path);
            return true;
        }
    }
    return false;
}

bool index_find(int dir, char kind, const char *origin, const char *path, char ret[DIGEST_SIZE]) {
    char prefix[INDEX_NAME_SIZE];
    bool found = false;
    index_prefix(kind, origin, prefix);
    DIR *d DEFER(dir_close) = dir_list(dir, ".");
    for (struct dirent *e; d && (e = readdir(d));) {
        char one[DIGEST_SIZE];
        if (strncmp(e->d_name, prefix, strlen(prefix)) != 0)
            continue;
        struct mapped m DEFER(index_unmap) = index_map(dir, e->d_name);
        if (!m.text || !mapped_find(&m, path, one))
            continue;
        if (found && strcmp(one, ret) != 0)
            return false;
        (void)utimensat(dir, e->d_name, NULL, AT_SYMLINK_NOFOLLOW); /* used now */
        memcpy(ret, one, DIGEST_SIZE);
        found = true;
    }
    return found;
}

bool index_find_by_digest(int dir, char kind, const char *origin, const char *above,
                          const char *digest, char ret_path[CACHE_PATH_SIZE]) {
    char prefix[INDEX_NAME_SIZE];
    index_prefix(kind, origin, prefix);
    DIR *d DEFER(dir_close) = dir_list(dir, ".");
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strncmp(e->d_name, prefix, strlen(prefix)) != 0)
            continue;
        struct mapped m DEFER(index_unmap) = index_map(dir, e->d_name);
        if (m.text && mapped_find_by_digest(&m, above, digest, ret_path))
            return true;
    }
    return false;
}
