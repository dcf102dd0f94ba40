#include "cli/layout.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/beneath.h"
#include "base/fs/dir.h"
#include "base/hex.h"

enum { BLOCK = 256 << 10 };

#define BLOBS "blobs/sha256"

static bool belongs(const char *path) {
    return strcmp(path, "oci-layout") == 0 || strcmp(path, "index.json") == 0 ||
           (strncmp(path, BLOBS "/", strlen(BLOBS) + 1) == 0 &&
            hex_is(path + strlen(BLOBS) + 1, 64));
}

/* ---- directory to archive ---- */

static int send_contents(int fd, uint64_t at, uint64_t size, const char *path, const char *what,
                         layout_write_fn *write_fn, void *arg, struct err *err) {
    static const uint8_t zeros[TAR_BLOCK];
    char *block DEFER_FREE = xmalloc(BLOCK);
    for (uint64_t left = size; left > 0;) {
        ssize_t n =
            pread(fd, block, left < BLOCK ? (size_t)left : BLOCK, (off_t)(at + size - left));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? err_sys(err, "cannot read '%s' of the %s", path, what)
                         : err_set(err, ERR_BUSY,
                                   "file '%s' of the %s was changed while it was read", path, what);
        if (write_fn(arg, block, (size_t)n, err) < 0)
            return -1;
        left -= (uint64_t)n;
    }
    return write_fn(arg, zeros, tar_padding(size), err);
}

int layout_send_bytes(int fd, uint64_t at, uint64_t size, const char *path,
                      layout_write_fn *write_fn, void *arg, struct err *err) {
    return send_contents(fd, at, size, path, "OCI layout", write_fn, arg, err);
}

int layout_send_file(int dir, const char *path, const char *as, const char *what,
                     layout_write_fn *write_fn, void *arg, struct err *err) {
    uint8_t head[TAR_HEAD_MAX];
    struct stat st;
    struct tar_entry *e DEFER_FREE = xnew(struct tar_entry);
    int fd DEFER_CLOSE = beneath_open_file(dir, path, err);
    if (fd < 0)
        return err_wrap(err, "cannot read the %s", what);
    if (fstat(fd, &st) < 0)
        return err_sys(err, "cannot read the size of '%s' of the %s", path, what);
    *e = (struct tar_entry){.kind = TAR_FILE, .mode = 0644, .size = (uint64_t)st.st_size};
    snprintf(e->path, sizeof(e->path), "%s", as);
    if (write_fn(arg, head, tar_put(head, e), err) < 0)
        return -1;
    return send_contents(fd, 0, e->size, path, what, write_fn, arg, err);
}

int layout_send_end(layout_write_fn *write_fn, void *arg, struct err *err) {
    static const uint8_t end[2 * TAR_BLOCK];
    return write_fn(arg, end, sizeof(end), err);
}

static int send_file(int dir, const char *path, layout_write_fn *write_fn, void *arg,
                     struct err *err) {
    return layout_send_file(dir, path, path, "OCI layout", write_fn, arg, err);
}

int layout_send(const char *path, layout_write_fn *write_fn, void *arg, struct err *err) {
    int dir DEFER_CLOSE = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_sys(err, "cannot open directory '%s'", path);
    if (faccessat(dir, "index.json", R_OK, 0) < 0) {
        err_set(err, ERR_INVALID, "directory '%s' is not an OCI layout: it has no index.json",
                path);
        return err_remedy(err,
                          "to import a root filesystem: tar -C %s -c . | carrel image "
                          "import -",
                          path);
    }
    if (send_file(dir, "oci-layout", write_fn, arg, err) < 0 ||
        send_file(dir, "index.json", write_fn, arg, err) < 0)
        return -1;
    int blobs = beneath_open(dir, BLOBS, O_RDONLY | O_DIRECTORY);
    if (beneath_leaves(blobs))
        return err_set(err, ERR_DENIED,
                       "directory '" BLOBS
                       "' of the OCI layout is a link or leads out of its directory");
    if (blobs < 0)
        return err_num(err, blobs, "cannot open directory '" BLOBS "' of the OCI layout");
    DIR *d DEFER(dir_close) = dir_take(blobs);
    if (!d)
        return err_sys(err, "cannot open directory '" BLOBS "' of the OCI layout");
    for (struct dirent *e; (e = readdir(d));) {
        char name[sizeof(BLOBS) + 66];
        if (!hex_is(e->d_name, 64))
            continue;
        snprintf(name, sizeof(name), BLOBS "/%s", e->d_name);
        if (send_file(dir, name, write_fn, arg, err) < 0)
            return -1;
    }
    return layout_send_end(write_fn, arg, err);
}

/* ---- archive to directory ---- */

bool layout_is_empty(int dir) {
    DIR *d DEFER(dir_close) = dir_list(dir, ".");
    int entries = 0;
    while (d && entries < 3 && readdir(d))
        entries++;
    return d && entries == 2;
}

void layout_start(struct layout_reader *r, const struct layout_kind *kind, int dir) {
    *r = (struct layout_reader){.kind = kind,
                                .dir = dir,
                                .file = -1,
                                .tar = xcalloc(1, sizeof(*r->tar)),
                                .entry = xcalloc(1, sizeof(*r->entry))};
}

static int begin_blob(struct layout_reader *r, struct err *err) {
    const struct tar_entry *e = r->entry;
    if (e->kind != TAR_FILE || !belongs(e->path))
        return err_set(err, ERR_INVALID,
                       "the image archive contains '%.120s', which is not part of an OCI layout",
                       e->path);
    r->file = openat(r->dir, e->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    return r->file < 0 ? err_sys(err, "cannot write '%s' of the OCI layout", e->path) : 0;
}

int layout_open(struct layout_reader *r, const char *path, struct err *err) {
    static const struct layout_kind oci = {.what = "OCI layout", .begin = begin_blob};
    layout_start(r, &oci, -1);
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return err_sys(err, "cannot create directory '%s'", path);
    r->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r->dir < 0)
        return err_sys(err, "cannot open directory '%s'", path);
    if (!layout_is_empty(r->dir)) {
        err_set(err, ERR_EXISTS, "directory '%s' is not empty", path);
        return err_remedy(err, "use a new or empty directory");
    }
    if (mkdirat(r->dir, "blobs", 0755) < 0 || mkdirat(r->dir, BLOBS, 0755) < 0)
        return err_sys(err, "cannot create directory '%s/" BLOBS "'", path);
    return 0;
}

void layout_done(struct layout_reader *r) {
    close_fd(&r->file);
    close_fd(&r->dir);
    free(r->tar);
    free(r->entry);
}

static int take_block(struct layout_reader *r, struct err *err) {
    switch (tar_next(r->tar, r->block, r->entry)) {
    case TAR_MORE:
        return 0;
    case TAR_ENTRY:
        r->left = r->entry->size;
        r->padding = tar_padding(r->left);
        return r->kind->begin(r, err);
    case TAR_END:
        r->ended = true;
        return 0;
    default:
        return err_set(err, ERR_INVALID, "the daemon sent a damaged archive of the %s",
                       r->kind->what);
    }
}

static int end_file(struct layout_reader *r, struct err *err) {
    int ended = r->file >= 0 && r->kind->end ? r->kind->end(r, err) : 0;
    close_fd(&r->file);
    return ended;
}

/* Consumes bytes of a file or of the padding after it; returns how many bytes. */
static size_t take_contents(struct layout_reader *r, const uint8_t *p, size_t n, struct err *err,
                            int *failed) {
    uint64_t *of = r->left ? &r->left : &r->padding;
    size_t take = n < *of ? n : (size_t)*of;
    int w = r->left && r->file >= 0 ? write_all(r->file, p, take) : 0;
    if (w < 0)
        *failed = err_num(err, w, "cannot write '%s' of the %s", r->entry->path, r->kind->what);
    *of -= take;
    if (!r->left && !*failed)
        *failed = end_file(r, err);
    return take;
}

int layout_take(struct layout_reader *r, const void *bytes, size_t n, struct err *err) {
    const uint8_t *p = bytes;
    int failed = 0;
    while (n > 0 && !r->ended && !failed) {
        if (r->left || r->padding) {
            size_t used = take_contents(r, p, n, err, &failed);
            p += used;
            n -= used;
            continue;
        }
        size_t take = TAR_BLOCK - r->held < n ? TAR_BLOCK - r->held : n;
        memcpy(r->block + r->held, p, take);
        r->held += take;
        p += take;
        n -= take;
        if (r->held == TAR_BLOCK) {
            r->held = 0;
            failed = take_block(r, err);
            if (!r->left && !failed)
                failed = end_file(r, err);
        }
    }
    return failed;
}

int layout_finish(struct layout_reader *r, struct err *err) {
    return r->ended ? 0
                    : err_set(err, ERR_INVALID, "the daemon sent an incomplete archive of the %s",
                              r->kind->what);
}
