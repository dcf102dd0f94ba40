/* The directories and files of volumes in the store. These functions block: call them in a job. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fs/dir.h"
#include "base/fs/folder.h"
#include "base/log.h"
#include "service/volumes/inner.h"

enum { COPY_PIECE = 1 << 20 };

void volume_path(const struct service *s, const char *prefix, const char *id,
                 char ret[VOLUME_PATH_SIZE]) {
    snprintf(ret, VOLUME_PATH_SIZE, "%s/volumes%s%s%s", s->place->home, *id ? "/" : "", prefix, id);
}

int volume_rename(const struct service *s, const char *id, const char *from, const char *to,
                  struct err *err) {
    char old[VOLUME_PATH_SIZE], new[VOLUME_PATH_SIZE];
    volume_path(s, from, id, old);
    volume_path(s, to, id, new);
    int r = rename(old, new) < 0 ? -errno : folder_sync_above(new);
    if (r == 0)
        r = folder_sync(s->place->home); /* the first volume makes the directory of volumes */
    return r < 0 ? err_num(err, r, "cannot rename the directory of a volume") : 0;
}

int volume_delete(const struct service *s, const char *prefix, const char *id, struct err *err) {
    char path[VOLUME_PATH_SIZE];
    volume_path(s, prefix, id, path);
    int dir DEFER_CLOSE = dir_open(AT_FDCWD, path);
    if (dir == -ENOENT)
        return 0;
    if (dir < 0)
        return err_num(err, dir, "cannot open the directory of a volume");
    if ((unlinkat(dir, "disk", 0) < 0 && errno != ENOENT) || rmdir(path) < 0)
        return err_sys(err, "cannot delete the directory of a volume");
    return 0;
}

/* ---- copies ---- */

static int copy_piece_of(int from, int to, off_t at, off_t end) {
    char *bytes DEFER_FREE = xmalloc(COPY_PIECE);
    while (at < end) {
        size_t want = end - at < COPY_PIECE ? (size_t)(end - at) : COPY_PIECE;
        ssize_t n = pread(from, bytes, want, at);
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        ssize_t put = pwrite(to, bytes, (size_t)n, at);
        if (put != n)
            return put < 0 ? -errno : -ENOSPC;
        at += n;
    }
    return 0;
}

/* Copies only the data of a sparse file, so that holes stay holes. */
static int copy_sparse(int from, int to, off_t size) {
    int r = ftruncate(to, size) < 0 ? -errno : 0;
    for (off_t at = 0; r == 0 && at < size;) {
        off_t data = lseek(from, at, SEEK_DATA);
        if (data < 0)
            return errno == ENXIO ? 0 : -errno;
        off_t hole = lseek(from, data, SEEK_HOLE);
        at = hole < 0 ? size : hole;
        r = copy_piece_of(from, to, data, at);
    }
    return r;
}

static int copy_disk(int from, int to) {
    struct stat st;
    if (fstat(from, &st) < 0)
        return -errno;
    int r = ioctl(to, FICLONE, from) == 0 ? 0 : copy_sparse(from, to, st.st_size);
    return r < 0 ? r : fsync(to) < 0 ? -errno : 0;
}

static int volume_disk(const struct service *s, const char *prefix, const char *id, int flags) {
    char path[VOLUME_PATH_SIZE];
    volume_path(s, prefix, id, path);
    int dir DEFER_CLOSE = dir_open(AT_FDCWD, path);
    int fd = dir < 0 ? dir : openat(dir, "disk", flags | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 && dir >= 0 ? -errno : fd;
}

int volume_copy(const struct service *s, const char *from, const char *to, struct err *err) {
    char path[VOLUME_PATH_SIZE];
    volume_path(s, VOLUME_NEW, to, path);
    if (mkdir(path, 0700) < 0)
        return err_sys(err, "cannot create the directory of a volume");
    int source DEFER_CLOSE = volume_disk(s, "", from, O_RDONLY);
    int copy DEFER_CLOSE = volume_disk(s, VOLUME_NEW, to, O_RDWR | O_CREAT | O_EXCL);
    int r = source < 0 ? source : copy < 0 ? copy : copy_disk(source, copy);
    if (r == 0)
        r = folder_sync(path);
    return r < 0 ? err_num(err, r, "cannot copy the disk of a volume") : 0;
}

/* ---- start of the daemon ---- */

static void finish_one(struct service *s, const char *name) {
    static const char *const prefixes[] = {VOLUME_NEW, VOLUME_OLD};
    struct err err;
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++) {
        size_t n = strlen(prefixes[i]);
        const char *id = name + n;
        if (strncmp(name, prefixes[i], n) != 0 || !id_valid(id, strlen(id), 'v'))
            continue;
        int r = store_volume_exists(s->store, id) ? volume_rename(s, id, prefixes[i], "", &err)
                                                  : volume_delete(s, prefixes[i], id, &err);
        if (r < 0)
            log_line(LOG_ERROR, "service", "restore an unfinished volume: %s id=%s", err.text, id);
    }
}

void volumes_sweep(struct service *s) {
    char path[VOLUME_PATH_SIZE];
    struct dirent *e;
    volume_path(s, "", "", path);
    DIR *all DEFER(dir_close) = dir_list(AT_FDCWD, path);
    while (all && (e = readdir(all)))
        finish_one(s, e->d_name);
}
