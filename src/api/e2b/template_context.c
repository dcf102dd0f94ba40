#include "api/e2b/template_context.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/tar.h"
#include "io/gzip.h"

enum { PIECE = 64 << 10 };

struct context {
    const struct context_request *request;
    char source[CONTEXT_PATH_SIZE];
    struct tar_reader reader;
    struct tar_entry entry;
    char path[CONTEXT_PATH_SIZE];
    uint8_t block[TAR_BLOCK];
    size_t block_n;
    uint64_t left;         /* bytes of contents and padding that are still to come */
    struct gzip *unpacker; /* NULL: it is not compressed */
    bool keeps;            /* the contents are of an entry that is written */
    bool ended, found;
    enum context_kind kind;
};

/* ---- paths ---- */

/* Adds the part of a path, or refuses it. */
static int path_add(char ret[CONTEXT_PATH_SIZE], size_t *len, const char *part, size_t n,
                    struct err *err) {
    if (n == 0 || (n == 1 && part[0] == '.'))
        return 0;
    if (n == 2 && part[0] == '.' && part[1] == '.')
        return err_set(err, ERR_INVALID, "a path of the files has '..'");
    if (*len + n + 2 > CONTEXT_PATH_SIZE)
        return err_set(err, ERR_INVALID, "a path of the files is too long");
    if (*len)
        ret[(*len)++] = '/';
    memcpy(ret + *len, part, n);
    *len += n;
    return 0;
}

static int path_clean(const char *path, bool patterns, char ret[CONTEXT_PATH_SIZE],
                      struct err *err) {
    size_t len = 0, n;
    for (; *path; path += n + (path[n] == '/')) {
        n = strcspn(path, "/");
        if (patterns && strcspn(path, "*?[{") < n)
            break;
        if (path_add(ret, &len, path, n, err) < 0)
            return -1;
    }
    ret[len] = '\0';
    return 0;
}

int context_source(const char *source, char ret[CONTEXT_PATH_SIZE], struct err *err) {
    return path_clean(source, true, ret, err);
}

/*
 * The path of an entry at the destination: below the source, or the name of the source itself.
 * NULL: the entry does not belong to the source. "": it is the directory of the source.
 */
static const char *path_below(const struct context *c, const char *path) {
    size_t n = strlen(c->source);
    if (n == 0)
        return path;
    if (strncmp(path, c->source, n) != 0 || (path[n] && path[n] != '/'))
        return NULL;
    return path[n] ? path + n + 1 : "";
}

/* ---- entries ---- */

static int context_put(struct context *c, const void *bytes, size_t n, struct err *err) {
    int r = write_all(c->request->out, bytes, n);
    return r < 0 ? err_num(err, r, "cannot store the files of a step") : 0;
}

/* The source is one file or link. */
static int entry_alone(struct context *c, struct err *err) {
    struct tar_entry *e = &c->entry;
    const char *slash = strrchr(c->source, '/');
    const char *name = slash ? slash + 1 : c->source;
    if (e->kind == TAR_HARDLINK)
        return err_set(err, ERR_INVALID, "'%.100s' is a second name of another file", c->source);
    c->kind = e->kind == TAR_FILE ? CONTEXT_FILE : CONTEXT_LINK;
    if (c->kind == CONTEXT_LINK && c->request->name)
        name = c->request->name;
    snprintf(e->path, sizeof(e->path), "%s", name);
    return 1;
}

static int entry_link(struct context *c, struct err *err) {
    char target[CONTEXT_PATH_SIZE];
    if (c->entry.kind != TAR_HARDLINK)
        return 1;
    if (path_clean(c->entry.target, false, target, err) < 0)
        return -1;
    const char *below = path_below(c, target);
    if (!below || !*below)
        return err_set(err, ERR_INVALID, "'%.100s' is a second name of a file that is not copied",
                       c->entry.path);
    memmove(c->entry.target, below, strlen(below) + 1);
    return 1;
}

/* 1: the entry is written, 0: it is left out. */
static int entry_place(struct context *c, struct err *err) {
    struct tar_entry *e = &c->entry;
    if (path_clean(e->path, false, c->path, err) < 0)
        return -1;
    const char *below = path_below(c, c->path);
    if (!below)
        return 0;
    if (e->kind == TAR_OTHER)
        return err_set(err, ERR_INVALID, "'%.100s' is neither a file, a directory nor a link",
                       e->path);
    c->found = true;
    if (!*below)
        return e->kind == TAR_DIR ? 0 : entry_alone(c, err);
    snprintf(e->path, sizeof(e->path), "%s", below);
    return entry_link(c, err);
}

static int entry_begin(struct context *c, struct err *err) {
    struct tar_entry *e = &c->entry;
    uint8_t head[TAR_HEAD_MAX];
    c->left = e->size + tar_padding(e->size);
    int r = entry_place(c, err);
    c->keeps = r > 0;
    if (r <= 0)
        return r;
    e->uid = e->gid = 0;
    if (c->request->mode >= 0 && e->kind != TAR_SYMLINK)
        e->mode = (uint32_t)c->request->mode;
    return context_put(c, head, tar_put(head, e), err);
}

/* ---- the archive ---- */

static int block_next(struct context *c, struct err *err) {
    c->block_n = 0;
    switch (tar_next(&c->reader, c->block, &c->entry)) {
    case TAR_MORE:
        return 0;
    case TAR_ENTRY:
        return entry_begin(c, err);
    case TAR_END:
        c->ended = true;
        return 0;
    default:
        return err_set(err, ERR_INVALID, "the files of the step are not an archive");
    }
}

static int context_feed(struct context *c, const char *bytes, size_t n, struct err *err) {
    if (n > *c->request->bytes_left)
        return err_set(err, ERR_LIMIT, "the unpacked files of all steps are too large");
    *c->request->bytes_left -= n;
    for (size_t part; n && !c->ended; bytes += part, n -= part) {
        if (c->left) {
            part = c->left < n ? (size_t)c->left : n;
            c->left -= part;
            if (c->keeps && context_put(c, bytes, part, err) < 0)
                return -1;
            continue;
        }
        part = TAR_BLOCK - c->block_n < n ? TAR_BLOCK - c->block_n : n;
        memcpy(c->block + c->block_n, bytes, part);
        c->block_n += part;
        if (c->block_n == TAR_BLOCK && block_next(c, err) < 0)
            return -1;
    }
    return 0;
}

/* Feeds the pieces of a compressed archive; 1: its stream has ended. */
static int context_unpack(struct context *c, const char *bytes, size_t n, bool end,
                          struct err *err) {
    char *out DEFER_FREE = xmalloc(PIECE);
    size_t used, got;
    int r;
    do {
        if ((r = gzip_go(c->unpacker, bytes, n, end, out, PIECE, &used, &got, err)) < 0 ||
            context_feed(c, out, got, err) < 0)
            return -1;
        bytes += used;
        n -= used;
    } while (r == 0 && !c->ended && (n || got));
    return r;
}

static int context_read(struct context *c, struct err *err) {
    static const char magic[2] = {'\x1f', '\x8b'};
    char *piece DEFER_FREE = xmalloc(PIECE);
    uint64_t at = 0;
    for (int r = 0; r == 0 && !c->ended;) {
        ssize_t n = pread(c->request->in, piece, PIECE, (off_t)at);
        if (n < 0)
            return err_sys(err, "cannot read the files of a step");
        if (at == 0 && n >= 2 && memcmp(piece, magic, 2) == 0)
            c->unpacker = gunzip_new();
        at += (uint64_t)n;
        r = c->unpacker ? context_unpack(c, piece, (size_t)n, n == 0, err)
                        : context_feed(c, piece, (size_t)n, err);
        if (r < 0)
            return -1;
        if (n == 0)
            break;
    }
    return 0;
}

int context_write(const struct context_request *r, enum context_kind *ret, struct err *err) {
    static const uint8_t end[2 * TAR_BLOCK];
    struct context *c DEFER_FREE = xnew(struct context);
    c->request = r;
    c->kind = CONTEXT_DIR;
    int status = context_source(r->source, c->source, err);
    if (status == 0)
        status = context_read(c, err);
    gzip_free(c->unpacker);
    if (status < 0)
        return -1;
    if (c->left || c->block_n)
        return err_set(err, ERR_INVALID, "the files of the step end too early");
    if (!c->found)
        return err_set(err, ERR_INVALID, "'%.100s' is not among the files of the step", r->source);
    if (context_put(c, end, sizeof(end), err) < 0)
        return -1;
    *ret = c->kind;
    return 0;
}
