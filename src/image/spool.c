#include "image/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/amount.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "image/cost.h"
#include "image/path.h"
#include "image/unpack.h"

enum { PIECE = 256 << 10 };

void spool_done(struct spool *s) {
    while (s->count) {
        char number[16];
        snprintf(number, sizeof(number), "%zu", --s->count);
        unlinkat(s->dir, number, 0);
        free(s->names[s->count]);
    }
}

static int write_piece(int fd, const void *bytes, size_t n, struct err *err) {
    int r = write_all(fd, bytes, n);
    if (r == -ENOSPC || r == -EDQUOT) {
        err_set(err, ERR_LIMIT, "no disk space left for the image archive");
        return err_remedy(err, "free space in CARREL_HOME, for example with: carrel image prune");
    }
    return r < 0 ? err_num(err, r, "cannot write a temporary file of the image archive") : 0;
}

static int copy_in(struct spool *s, struct archive *a, int fd, struct err *err) {
    char piece[64 << 10];
    for (;;) {
        la_ssize_t n = archive_read_data(a, piece, sizeof(piece));
        if (n == 0)
            return 0;
        if (n < 0) {
            const char *why = archive_error_string(a);
            return err_set(err, ERR_INVALID, "the image archive is broken: %.160s", why ? why : "");
        }
        s->bytes += (uint64_t)n;
        if (s->bytes > s->limit)
            return err_set(err, ERR_LIMIT, "the image archive is larger than %llu MiB",
                           (unsigned long long)(s->limit >> 20));
        if (unpack_charge(s->unpack, (uint64_t)n, err) < 0 ||
            write_piece(fd, piece, (size_t)n, err) < 0)
            return -1;
        report_progress(s->report, s->count, s->bytes);
    }
}

/* Files of packs are named by their hash, which their readers verify. */
static bool is_named_by_hash(const char *path) {
    return strncmp(path, "packs/", 6) == 0 || strncmp(path, "manifests/", 10) == 0;
}

/* 0: the file is there already. 1: it is not. -1: it must not come again. */
static int spool_is_new(const struct spool *s, const char *path, struct err *err) {
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->names[i], path) == 0)
            return is_named_by_hash(path)
                       ? 0
                       : err_set(err, ERR_INVALID, "the image archive contains file '%.120s' twice",
                                 path);
    return 1;
}

int spool_take(struct spool *s, struct archive *a, struct archive_entry *e, struct err *err) {
    char path[IMAGE_PATH_SIZE], number[16];
    if (image_path(unpack_name(e), path, err) < 0)
        return -1;
    if (archive_entry_filetype(e) != AE_IFREG || archive_entry_hardlink(e))
        return 0;
    int is_new = spool_is_new(s, path, err);
    if (is_new <= 0)
        return is_new;
    if (s->count == SPOOL_FILES_MAX)
        return err_set(err, ERR_LIMIT, "the image archive contains more than %d files",
                       SPOOL_FILES_MAX);
    snprintf(number, sizeof(number), "%zu", s->count);
    if (unpack_charge(s->unpack, COST_INODE + COST_BLOCK, err) < 0)
        return -1;
    int fd DEFER_CLOSE = openat(s->dir, number, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, "cannot write a temporary file of the image archive");
    if (!(s->names[s->count] = strdup(path)))
        return err_set(err, ERR_LIMIT, "out of memory");
    s->count++;
    return copy_in(s, a, fd, err);
}

int spool_open(const struct spool *s, const char *name, struct err *err) {
    char path[IMAGE_PATH_SIZE], number[16];
    if (image_path(name, path, err) < 0)
        return -1;
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->names[i], path) == 0) {
            snprintf(number, sizeof(number), "%zu", i);
            int fd = openat(s->dir, number, O_RDONLY | O_CLOEXEC);
            return fd >= 0 ? fd
                           : err_sys(err, "cannot open file '%.120s' of the image archive", path);
        }
    return err_set(err, ERR_INVALID, "the image archive lacks file '%.120s'", path);
}

static int read_fd(int fd, const char *name, size_t max, struct buf *ret, struct err *err) {
    char piece[16 << 10];
    for (;;) {
        ssize_t n = read(fd, piece, sizeof(piece));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, "cannot read file '%.120s' of the image archive", name);
        if (n == 0)
            return 0;
        if (ret->len + (size_t)n > max || !buf_add(ret, piece, (size_t)n)) {
            char limit[AMOUNT_SIZE];
            amount_size(max, limit);
            return err_set(err, ERR_LIMIT,
                           "metadata file '%.120s' (JSON) of the image archive is larger than %s",
                           name, limit);
        }
    }
}

int spool_read(const struct spool *s, const char *name, size_t max, struct buf *ret,
               struct err *err) {
    int fd DEFER_CLOSE = spool_open(s, name, err);
    return fd < 0 ? -1 : read_fd(fd, name, max, ret, err);
}

int spool_hash(int fd, char ret[OCI_DIGEST_SIZE], uint64_t *ret_size, struct err *err) {
    char *piece DEFER_FREE = malloc(PIECE);
    uint8_t hash[SHA256_BYTES];
    struct sha256 sum;
    if (!piece)
        return err_set(err, ERR_LIMIT, "out of memory");
    sha256_init(&sum);
    *ret_size = 0;
    for (ssize_t n; (n = read(fd, piece, PIECE)) != 0;) {
        if (n < 0 && errno != EINTR)
            return err_sys(err, "cannot read the image archive");
        if (n > 0) {
            sha256_add(&sum, piece, (size_t)n);
            *ret_size += (uint64_t)n;
        }
    }
    sha256_end(&sum, hash);
    oci_digest_of(hash, ret);
    return lseek(fd, 0, SEEK_SET) < 0 ? err_sys(err, "cannot read the image archive") : 0;
}

int spool_open_blob(const struct spool *s, const struct oci_blob *blob, struct err *err) {
    char name[OCI_DIGEST_SIZE + 16], found[OCI_DIGEST_SIZE];
    uint64_t size;
    snprintf(name, sizeof(name), "blobs/sha256/%s", blob->digest + strlen("sha256:"));
    int fd DEFER_CLOSE = spool_open(s, name, err);
    if (fd < 0 || spool_hash(fd, found, &size, err) < 0)
        return -1;
    if (strcmp(found, blob->digest) != 0 || size != blob->size)
        return err_set(err, ERR_INVALID, "blob '%s' of the image archive does not match its digest",
                       blob->digest);
    return TAKE_FD(fd);
}

int spool_read_blob(const struct spool *s, const struct oci_blob *blob, struct buf *ret,
                    struct err *err) {
    int fd DEFER_CLOSE = spool_open_blob(s, blob, err);
    return fd < 0 ? -1 : read_fd(fd, blob->digest, OCI_JSON_MAX, ret, err);
}
