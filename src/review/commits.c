#include "review/commits.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "review/flags.h"

enum { SCAN_ALL_MAX = 64 << 20, LINK = 0120000, MODULE = 0160000 };

void commits_done(struct commits *c) {
    free(c->files);
    buf_done(&c->changes);
    buf_done(&c->objects);
    *c = (struct commits){.count = 0};
}

static struct commits_file *commits_add(struct commits *c) {
    if (c->count == COMMITS_FILES_MAX) {
        c->cut = true;
        return NULL;
    }
    if ((c->count & (c->count - 1)) == 0) {
        size_t room = c->count ? 2 * c->count : 16;
        struct commits_file *files = xrealloc(c->files, room, sizeof(*files));
        c->files = files;
    }
    struct commits_file *f = &c->files[c->count++];
    *f = (struct commits_file){.path = ""};
    return f;
}

/* ---- changed files ---- */

static bool is_hash(const char *text) {
    size_t n = strspn(text, "0123456789abcdef");
    return n == strlen(text) && (n == 40 || n == 64);
}

/* Parses a row ":100644 100755 HASH HASH M". */
static bool read_row(const char *row, struct commits_file *f) {
    char before[COMMITS_HASH + 1], after[COMMITS_HASH + 1], status;
    int used = 0;
    if (sscanf(row, ":%6o %6o %65s %65s %c%n", &f->before, &f->after, before, after, &status,
               &used) != 5 ||
        row[used] || !is_hash(before) || !is_hash(after) || !strchr("AMDT", status))
        return false;
    f->change = status == 'T' ? 'M' : status;
    snprintf(f->blob, sizeof(f->blob), "%s", after);
    return true;
}

int commits_parse(const char *text, size_t n, struct commits *ret, struct err *err) {
    for (const char *at = text, *end = text + n; at < end;) {
        struct commits_file row = {.path = ""};
        const char *path = memchr(at, 0, (size_t)(end - at));
        const char *last = path ? memchr(path + 1, 0, (size_t)(end - path - 1)) : NULL;
        if (!last || !path[1] || !read_row(at, &row))
            return err_set(err, ERR_INVALID, "git's list of changes cannot be read");
        row.path = path + 1;
        struct commits_file *f = commits_add(ret);
        if (!f)
            return 0;
        *f = row;
        at = last + 1;
    }
    return 0;
}

/* ---- objects of the commits ---- */

static int by_hash(const void *a, const void *b) {
    return strcmp(a, b);
}

/* Returns the hashes of the blobs so far, sorted. */
static char (*hashes_of(const struct commits *c))[COMMITS_HASH] {
    char(*list)[COMMITS_HASH] = xcalloc(c->count + 1, sizeof(*list));
    for (size_t i = 0; i < c->count; i++)
        memcpy(list[i], c->files[i].blob, COMMITS_HASH);
    qsort(list, c->count, sizeof(*list), by_hash);
    return list;
}

void commits_add_objects(struct commits *c) {
    size_t known = c->count;
    char(*now)[COMMITS_HASH] DEFER_FREE = hashes_of(c);
    char *save = NULL;
    for (char *line = c->objects.data ? strtok_r(c->objects.data, "\n", &save) : NULL; line;
         line = strtok_r(NULL, "\n", &save)) {
        char *space = strchr(line, ' ');
        if (!space || !space[1])
            continue;
        *space = '\0';
        if (!is_hash(line) || bsearch(line, now, known, sizeof(*now), by_hash))
            continue;
        struct commits_file *f = commits_add(c);
        if (!f)
            return;
        f->path = space + 1;
        f->change = 'C';
        f->after = 0100644;
        snprintf(f->blob, sizeof(f->blob), "%s", line);
    }
}

bool commits_has_blob(const struct commits_file *f) {
    return f->change != 'D' && f->after != MODULE;
}

struct reading {
    const char *at, *end;
};

/* Reads a line "HASH KIND SIZE". False: not such a line. */
static bool commits_read_head(struct reading *r, char kind[16], uint64_t *ret_size) {
    char head[160];
    const char *line = r->at < r->end ? memchr(r->at, '\n', (size_t)(r->end - r->at)) : NULL;
    if (!line || (size_t)(line - r->at) >= sizeof(head))
        return false;
    snprintf(head, sizeof(head), "%.*s", (int)(line - r->at), r->at);
    r->at = line + 1;
    return sscanf(head, "%*s %15s %" SCNu64, kind, ret_size) == 2;
}

int commits_set_sizes(struct commits *c, const char *text, size_t n, struct err *err) {
    char kind[16];
    size_t kept = 0;
    struct reading r = {text, text + n};
    bool ok = true;
    for (size_t i = 0; i < c->count && ok; i++) {
        struct commits_file *f = &c->files[i];
        ok = !commits_has_blob(f) || commits_read_head(&r, kind, &f->size);
        if (ok && (f->change != 'C' || strcmp(kind, "blob") == 0))
            c->files[kept++] = *f;
    }
    c->count = kept;
    return ok ? 0 : err_set(err, ERR_INVALID, "git's list of objects cannot be read");
}

/* ---- flags ---- */

static void flag(struct commits_file *f, const char *bytes, size_t n) {
    struct tar_entry *e DEFER_FREE = xnew(struct tar_entry);
    e->kind = f->after == LINK ? TAR_SYMLINK : TAR_FILE;
    e->mode = f->after & 0777;
    snprintf(e->path, sizeof(e->path), "%s", f->path);
    if (e->kind == TAR_SYMLINK)
        snprintf(e->target, sizeof(e->target), "%.*s", n < 4095 ? (int)n : 4095, bytes);
    f->flags |= flags_of(e, bytes, n);
}

uint64_t commits_scan_limit(const struct commits *c) {
    uint64_t most = COMMITS_SCAN_MAX, sum = UINT64_MAX;
    for (; sum > SCAN_ALL_MAX && most; most /= 2) {
        sum = 0;
        for (size_t i = 0; i < c->count; i++)
            sum +=
                commits_has_blob(&c->files[i]) && c->files[i].size <= most ? c->files[i].size : 0;
        if (sum <= SCAN_ALL_MAX)
            break;
    }
    return most;
}

int commits_scan(struct commits *c, const char *text, size_t n, uint64_t most, struct err *err) {
    char kind[16];
    uint64_t size;
    struct reading r = {text, text + n};
    bool ok = true;
    for (size_t i = 0; i < c->count && ok; i++) {
        struct commits_file *f = &c->files[i];
        if (!commits_has_blob(f) || f->size > most) {
            flag(f, "", 0);
            continue;
        }
        ok = commits_read_head(&r, kind, &size) && size < (uint64_t)(r.end - r.at);
        if (ok)
            flag(f, r.at, (size_t)size);
        r.at += ok ? size + 1 : 0;
    }
    return ok ? 0 : err_set(err, ERR_INVALID, "git's objects cannot be read");
}

void commits_keep_worthy(struct commits *c, unsigned more) {
    size_t kept = 0;
    for (size_t i = 0; i < c->count; i++) {
        struct commits_file *f = &c->files[i];
        if (f->change == 'C' && !(f->flags & FLAG_SECRET))
            continue;
        f->flags |= f->change == 'D' ? 0 : more;
        c->files[kept++] = *f;
    }
    c->count = kept;
}
