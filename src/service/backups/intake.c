/*
 * Writes the files of a backup from the tar that carrel-image sends. That program reads files of a
 * machine and may have been taken over: every name and size is checked, and every file must have
 * the hash that names it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/hex.h"
#include "service/backups/inner.h"

static int intake_refuse(const struct backup_intake *in, struct err *err, const char *why) {
    return in->is_copy ? err_set(err, ERR_INVALID, "the copy of the backup %s", why)
                       : err_set(err, ERR_INTERNAL, "carrel-image sent a backup that %s", why);
}

static int intake_failed(int r, struct err *err) {
    if (r != -ENOSPC && r != -EDQUOT)
        return err_num(err, r, "cannot write a file of the backup");
    err_set(err, ERR_LIMIT, "no disk space left in CARREL_HOME for the backup");
    return err_remedy(err, "free space, for example with: carrel backup prune, carrel image prune");
}

void backup_intake_done(struct backup_intake *in) {
    close_fd(&in->fd);
    close_fd(&in->packs);
    close_fd(&in->dir);
    buf_done(&in->text);
}

int backup_mark(int dir, const char *id, struct err *err) {
    char mark[ID_SIZE + 16];
    snprintf(mark, sizeof(mark), "%s" BACKUP_UNFINISHED, id);
    int fd DEFER_CLOSE = openat(dir, mark, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return fd < 0 || fsync(dir) < 0 ? err_sys(err, "cannot create the files of a backup") : 0;
}

void backup_unmark(int dir, const char *id) {
    char mark[ID_SIZE + 16];
    snprintf(mark, sizeof(mark), "%s" BACKUP_UNFINISHED, id);
    unlinkat(dir, mark, 0);
}

int backup_sync(const struct backup_intake *in, struct err *err) {
    return fsync(in->packs) < 0 || fsync(in->dir) < 0
               ? err_sys(err, "cannot sync the directory of the backup")
               : 0;
}

static bool intake_is_hash(const char *text) {
    return strlen(text) == 2 * SHA256_BYTES && strspn(text, "0123456789abcdef") == 2 * SHA256_BYTES;
}

/* Kinds of files in the stream: the start of their names, and the most bytes of them. */
enum intake_kind { INTAKE_PACK, INTAKE_MANIFEST, INTAKE_RECORD, INTAKE_TEXT, INTAKE_KINDS };
static const struct {
    const char *path;
    uint64_t most;
    const char *ending; /* of the file's name, after the id of the backup */
    bool hashed;
} kinds[INTAKE_KINDS] = {
    [INTAKE_PACK] = {"packs/", PACKFILE_MAX, "", true},
    [INTAKE_MANIFEST] = {"manifests/", MANIFEST_MAX, BACKUP_MANIFEST, true},
    [INTAKE_RECORD] = {"known", BACKUP_RECORD_MAX, BACKUP_KNOWN, false},
    [INTAKE_TEXT] = {BACKUP_TEXTS, BACKUP_TEXT_MAX, "", false},
};

static enum intake_kind intake_kind_of(const struct backup_intake *in, const char *path) {
    for (enum intake_kind i = 0; i < INTAKE_KINDS; i++) {
        size_t n = strlen(kinds[i].path);
        if (strncmp(path, kinds[i].path, n) != 0)
            continue;
        bool fits = i == INTAKE_TEXT     ? in->is_copy && !in->text.len
                    : i == INTAKE_RECORD ? !in->is_copy && !path[n]
                                         : intake_is_hash(path + n);
        return fits ? i : INTAKE_KINDS;
    }
    return INTAKE_KINDS;
}

static int intake_open(struct backup_intake *in, const struct tar_entry *e, struct err *err) {
    enum { FLAGS = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC };
    enum intake_kind kind = intake_kind_of(in, e->path);
    if (kind == INTAKE_KINDS || e->kind != TAR_FILE || e->size > kinds[kind].most ||
        ++in->files > MANIFEST_PACKS_MAX + INTAKE_KINDS)
        return intake_refuse(in, err, "has an unexpected file");
    in->written += e->size;
    if (in->most && in->written > in->most)
        return err_set(err, ERR_LIMIT, "the backup is larger than the rest of the disk quota");
    in->is_pack = kind == INTAKE_PACK;
    snprintf(in->hash, sizeof(in->hash), "%s",
             kinds[kind].hashed ? e->path + strlen(kinds[kind].path) : "");
    snprintf(in->name, sizeof(in->name), "%s%s", in->id, kinds[kind].ending);
    if (kind == INTAKE_MANIFEST)
        snprintf(in->manifest, sizeof(in->manifest), "%s", in->hash);
    in->has_record |= kind == INTAKE_RECORD;
    in->left = e->size;
    in->padding = tar_padding(e->size);
    sha256_init(&in->sum);
    if (kind == INTAKE_TEXT)
        return 0;
    in->fd = in->is_pack ? openat(in->packs, "new", FLAGS, 0600)
                         : openat(in->dir, in->name, FLAGS, 0600);
    return in->fd < 0 ? intake_failed(-errno, err) : 0;
}

/* The contents are complete: they are synced, and a pack gets its name. */
static int intake_close(struct backup_intake *in, struct err *err) {
    uint8_t hash[SHA256_BYTES];
    char hex[SHA256_HEX];
    if (in->fd < 0)
        return 0;
    sha256_end(&in->sum, hash);
    hex_put(hash, SHA256_BYTES, hex);
    if (in->hash[0] && strcmp(hex, in->hash) != 0)
        return intake_refuse(in, err, "has a file without the hash that names it");
    int r = fsync(in->fd) < 0 ? -errno : 0;
    if (r == 0 && in->is_pack && renameat(in->packs, "new", in->packs, in->hash) < 0)
        r = -errno;
    close_fd(&in->fd);
    return r < 0 ? intake_failed(r, err) : 0;
}

static int intake_contents(struct backup_intake *in, const uint8_t *bytes, size_t n,
                           struct err *err) {
    int r = in->fd < 0 ? (buf_add(&in->text, bytes, n) ? 0 : -EFBIG) : write_all(in->fd, bytes, n);
    if (r < 0)
        return intake_failed(r, err);
    sha256_add(&in->sum, bytes, n);
    in->left -= n;
    return in->left ? 0 : intake_close(in, err);
}

static int intake_block(struct backup_intake *in, struct err *err) {
    struct tar_entry e;
    in->block_len = 0;
    switch (tar_next(&in->tar, in->block, &e)) {
    case TAR_MORE:
        return 0;
    case TAR_END:
        in->ended = true;
        return 0;
    case TAR_ENTRY:
        if (intake_open(in, &e, err) < 0)
            return -1;
        return in->left ? 0 : intake_close(in, err);
    default:
        return intake_refuse(in, err, "is not a tar");
    }
}

static size_t intake_least(uint64_t a, size_t b) {
    return a < b ? (size_t)a : b;
}

int backup_intake_feed(struct backup_intake *in, const uint8_t *bytes, size_t n, struct err *err) {
    for (size_t used; n && !in->ended; bytes += used, n -= used) {
        int r = 0;
        if (in->left) {
            used = intake_least(in->left, n);
            r = intake_contents(in, bytes, used, err);
        } else if (in->padding) {
            used = intake_least(in->padding, n);
            in->padding -= (uint32_t)used;
        } else {
            used = intake_least(TAR_BLOCK - in->block_len, n);
            memcpy(in->block + in->block_len, bytes, used);
            in->block_len += used;
            r = in->block_len == TAR_BLOCK ? intake_block(in, err) : 0;
        }
        if (r < 0)
            return -1;
    }
    return 0;
}
