/* A backup as a tar: its packs, its manifest, and texts of the caller. All of it blocks. */
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
#include "service/backups/inner.h"

enum { PIECE = 1 << 20 };

void backup_archive_done(struct backup_archive *a) {
    close_fd(&a->fd);
    close_fd(&a->dir);
    close_fd(&a->packs);
    buf_done(&a->text);
    buf_done(&a->out);
    free(a->skip);
    a->skip = NULL;
}

int backup_archive_open(struct backup_archive *a, const struct service *s,
                        const struct backup_row *row, struct err *err) {
    snprintf(a->name, sizeof(a->name), "%s", row->manifest);
    a->dir = backup_dir_open(s, row->machine, err);
    a->packs = a->dir < 0 ? -1 : backup_packs_open(a->dir, err);
    return a->packs < 0 || backup_manifest(a->dir, row, &a->text, &a->manifest, err) < 0
               ? -1
               : backup_packs_exist(a->packs, &a->manifest, err);
}

static int archive_full(struct err *err) {
    return err_set(err, ERR_LIMIT, "out of memory");
}

static int put_head(struct backup_archive *a, const char *name, uint64_t size, struct err *err) {
    struct tar_entry *e DEFER_FREE = xnew(struct tar_entry);
    uint8_t head[TAR_HEAD_MAX];
    *e = (struct tar_entry){.kind = TAR_FILE, .mode = 0644, .size = size};
    snprintf(e->path, sizeof(e->path), "%s", name);
    return buf_add(&a->out, head, tar_put(head, e)) ? 0 : archive_full(err);
}

static int put_padding(struct backup_archive *a, uint64_t size, struct err *err) {
    static const uint8_t zeros[TAR_BLOCK];
    return buf_add(&a->out, zeros, tar_padding(size)) ? 0 : archive_full(err);
}

int backup_archive_text(struct backup_archive *a, const char *name, const void *text, size_t n,
                        struct err *err) {
    return put_head(a, name, n, err) < 0 || !buf_add(&a->out, text, n) || put_padding(a, n, err) < 0
               ? archive_full(err)
               : 0;
}

int backup_archive_manifest(struct backup_archive *a, struct err *err) {
    char name[SHA256_HEX + 16];
    snprintf(name, sizeof(name), "manifests/%s", a->name);
    return backup_archive_text(a, name, a->text.data, a->text.len, err);
}

static int begin_pack(struct backup_archive *a, uint32_t i, struct err *err) {
    char hash[SHA256_HEX], name[SHA256_HEX + 16];
    struct stat st;
    a->fd = backup_pack_open(a->packs, &a->manifest, i, hash, err);
    if (a->fd < 0)
        return -1;
    if (fstat(a->fd, &st) < 0 || st.st_size <= 0 || st.st_size > PACKFILE_MAX)
        return err_set(err, ERR_INVALID, "pack '%s' of the backup is damaged", hash);
    snprintf(name, sizeof(name), "packs/%s", hash);
    a->size = a->left = (uint64_t)st.st_size;
    return put_head(a, name, a->left, err);
}

static int put_pack(struct backup_archive *a, struct err *err) {
    char *piece DEFER_FREE = xmalloc(PIECE);
    ssize_t n = read(a->fd, piece, a->left < PIECE ? (size_t)a->left : PIECE);
    if (n < 0 && errno == EINTR)
        return 0;
    if (n <= 0)
        return n < 0 ? err_sys(err, "cannot read a pack of the backup")
                     : err_set(err, ERR_INVALID, "a pack of the backup was cut off");
    if (!buf_add(&a->out, piece, (size_t)n))
        return archive_full(err);
    a->left -= (uint64_t)n;
    if (a->left)
        return 0;
    close_fd(&a->fd);
    return put_padding(a, a->size, err);
}

static int put_next(struct backup_archive *a, struct err *err) {
    static const uint8_t zeros[2 * TAR_BLOCK];
    if (a->fd >= 0)
        return put_pack(a, err);
    while (a->at < a->manifest.pack_count && a->skip && a->skip[a->at])
        a->at++;
    if (a->at < a->manifest.pack_count)
        return begin_pack(a, a->at++, err);
    if (a->last && backup_archive_manifest(a, err) < 0)
        return -1;
    if (a->last && backup_archive_text(a, a->last_name, a->last, strlen(a->last), err) < 0)
        return -1;
    a->at_end = true;
    return buf_add(&a->out, zeros, sizeof(zeros)) ? 0 : archive_full(err);
}

int backup_archive_read(struct backup_archive *a, struct err *err) {
    while (!a->at_end && a->out.len < PIECE)
        if (put_next(a, err) < 0)
            return -1;
    return 0;
}
