/*
 * What was written and is not on the disk: a program or library that includes this has its own
 * calls that write, name, remove and sync, which the others find first. A file is unsynced from the
 * first byte, and a directory from the first name that comes or goes, until a sync that began after
 * it has ended well. What no name leads to any more does not count.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SYNC_FILES = 4096, SYNC_PATH = 256 };

struct sync_entry {
    dev_t dev;
    ino_t ino;
    uint64_t when;
    char path[SYNC_PATH]; /* its name when it was written last, for whoever reads the failure */
};

static struct {
    pthread_mutex_t lock;
    struct sync_entry files[SYNC_FILES];
    size_t count;
    uint64_t clock;
    bool all_threads;      /* else only what the first one writes is noted */
    char early[SYNC_PATH]; /* the last file that got its name before its bytes were on the disk */
    bool lost;             /* there were too many files for this list */
    ino_t head_of;         /* of this file: */
    bool head_early;       /* its first bytes were written last while others of it were unsynced */
    bool head_unsynced;    /* its first bytes are */
    bool rest_early;       /* others of it were written while its first bytes were unsynced */
} sync_seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static inline size_t sync_find(const struct stat *st) {
    size_t i = 0;
    while (i < sync_seen.count &&
           (sync_seen.files[i].ino != st->st_ino || sync_seen.files[i].dev != st->st_dev))
        i++;
    return i;
}

static inline void sync_drop(size_t i) {
    sync_seen.files[i] = sync_seen.files[--sync_seen.count];
}

static inline void sync_path(int fd, char ret[SYNC_PATH]) {
    char link[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, ret, SYNC_PATH - 1);
    ret[n > 0 ? n : 0] = '\0';
}

static inline void sync_note(int fd) {
    struct stat st;
    int kept = errno;
    bool noted = sync_seen.all_threads || syscall(SYS_gettid) == getpid();
    if (noted && fstat(fd, &st) == 0 && st.st_nlink > 0 &&
        (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))) {
        pthread_mutex_lock(&sync_seen.lock);
        size_t i = sync_find(&st);
        if (i == sync_seen.count && i < SYNC_FILES)
            sync_seen.count++;
        if (i < SYNC_FILES) {
            sync_seen.files[i] = (struct sync_entry){st.st_dev, st.st_ino, ++sync_seen.clock, {0}};
            sync_path(fd, sync_seen.files[i].path);
        } else {
            sync_seen.lost = true;
        }
        pthread_mutex_unlock(&sync_seen.lock);
    }
    errno = kept;
}

/* A folder in which a name came or went. */
static inline void sync_note_folder(int dir, const char *path) {
    int kept = errno;
    char above[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(above, sizeof(above), "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    int fd =
        (int)syscall(SYS_openat, dir, *above ? above : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd >= 0) {
        sync_note(fd);
        close(fd);
    }
    errno = kept;
}

/* What a name stood for before it is taken away, if it is the last one. */
static inline void sync_gone(const struct stat *st) {
    pthread_mutex_lock(&sync_seen.lock);
    size_t i = sync_find(st);
    if (i < sync_seen.count && (S_ISDIR(st->st_mode) || st->st_nlink < 2))
        sync_drop(i);
    pthread_mutex_unlock(&sync_seen.lock);
}

static inline bool sync_is_below(const char *path, const char *folder) {
    size_t n = strlen(folder);
    return n && strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* A file, or a folder with everything in it, is about to get another name. */
static inline void sync_named(int dir, const char *path) {
    char whole[SYNC_PATH] = "";
    struct stat st;
    int kept = errno;
    int fd = (int)syscall(SYS_openat, dir, path, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
    if (fd >= 0 && fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))) {
        sync_path(fd, whole);
        pthread_mutex_lock(&sync_seen.lock);
        for (size_t i = 0; i < sync_seen.count; i++) {
            const struct sync_entry *e = &sync_seen.files[i];
            bool same = e->ino == st.st_ino && e->dev == st.st_dev;
            if (same || (S_ISDIR(st.st_mode) && sync_is_below(e->path, whole)))
                memcpy(sync_seen.early, e->path, SYNC_PATH);
        }
        pthread_mutex_unlock(&sync_seen.lock);
    }
    if (fd >= 0)
        close(fd);
    errno = kept;
}

/* whole: everything on its filesystem. */
static inline int sync_do(long call, int fd, bool whole) {
    struct stat st = {0};
    (void)fstat(fd, &st);
    pthread_mutex_lock(&sync_seen.lock);
    uint64_t began = sync_seen.clock;
    pthread_mutex_unlock(&sync_seen.lock);
    int r = (int)syscall(call, fd);
    if (r < 0)
        return r;
    pthread_mutex_lock(&sync_seen.lock);
    if (st.st_ino == sync_seen.head_of)
        sync_seen.head_unsynced = false;
    for (size_t i = sync_seen.count; i-- > 0;) {
        const struct sync_entry *e = &sync_seen.files[i];
        if (e->dev == st.st_dev && (whole || e->ino == st.st_ino) && e->when <= began)
            sync_drop(i);
    }
    pthread_mutex_unlock(&sync_seen.lock);
    return r;
}

/* The first that is unsynced, of a folder and what is below it, else NULL. */
static inline const char *sync_unsynced(const char *below) {
    static _Thread_local char found[SYNC_PATH];
    *found = '\0';
    pthread_mutex_lock(&sync_seen.lock);
    for (size_t i = 0; i < sync_seen.count && !*found; i++)
        if (sync_is_below(sync_seen.files[i].path, below))
            memcpy(found, sync_seen.files[i].path, SYNC_PATH);
    pthread_mutex_unlock(&sync_seen.lock);
    return *found ? found : NULL;
}

/* The names in it; what is below does not count. */
static inline bool sync_folder_is_unsynced(const char *path) {
    bool found = false;
    pthread_mutex_lock(&sync_seen.lock);
    for (size_t i = 0; i < sync_seen.count && !found; i++)
        found = strcmp(sync_seen.files[i].path, path) == 0;
    pthread_mutex_unlock(&sync_seen.lock);
    return found;
}

static inline void sync_forget(void) {
    pthread_mutex_lock(&sync_seen.lock);
    sync_seen.count = 0;
    sync_seen.early[0] = '\0';
    pthread_mutex_unlock(&sync_seen.lock);
}

/* ---- the calls ---- */

ssize_t write(int fd, const void *bytes, size_t len) {
    ssize_t n = syscall(SYS_write, fd, bytes, len);
    sync_note(fd);
    return n;
}

/* Bytes of the file that a test looks at: its first, or others. */
static inline void sync_note_part(int fd, bool head) {
    struct stat st;
    int kept = errno;
    pthread_mutex_lock(&sync_seen.lock);
    if (sync_seen.head_of && fstat(fd, &st) == 0 && st.st_ino == sync_seen.head_of) {
        if (head)
            sync_seen.head_early = sync_find(&st) < sync_seen.count;
        else
            sync_seen.rest_early |= sync_seen.head_unsynced;
        sync_seen.head_unsynced |= head;
    }
    pthread_mutex_unlock(&sync_seen.lock);
    errno = kept;
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t at) {
    sync_note_part(fd, at == 0);
    ssize_t n = syscall(SYS_pwrite64, fd, bytes, len, at);
    sync_note(fd);
    return n;
}

int ftruncate64(int fd, off64_t len) {
    int r = (int)syscall(SYS_ftruncate, fd, len);
    sync_note(fd);
    return r;
}

int openat64(int dir, const char *path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    struct stat st;
    bool makes = (flags & O_CREAT) && fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) < 0;
    int fd = (int)syscall(SYS_openat, dir, path, flags, mode);
    if (fd >= 0 && makes) {
        sync_note(fd);
        sync_note_folder(dir, path);
    }
    return fd;
}

int open64(const char *path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    return openat64(AT_FDCWD, path, flags, mode);
}

int mkdirat(int dir, const char *path, mode_t mode) {
    int r = (int)syscall(SYS_mkdirat, dir, path, mode);
    if (r == 0)
        sync_note_folder(dir, path);
    return r;
}

int mkdir(const char *path, mode_t mode) {
    return mkdirat(AT_FDCWD, path, mode);
}

int symlinkat(const char *target, int dir, const char *path) {
    int r = (int)syscall(SYS_symlinkat, target, dir, path);
    if (r == 0)
        sync_note_folder(dir, path);
    return r;
}

int linkat(int from, const char *path, int to, const char *to_path, int flags) {
    int r = (int)syscall(SYS_linkat, from, path, to, to_path, flags);
    if (r == 0)
        sync_note_folder(to, to_path);
    return r;
}

int link(const char *path, const char *to_path) {
    return linkat(AT_FDCWD, path, AT_FDCWD, to_path, 0);
}

/* The older call where it is enough: some filesystems know no other. */
static inline int sync_rename(int from, const char *path, int to, const char *to_path,
                              unsigned flags) {
    struct stat st = {0};
    (void)fstatat(to, to_path, &st, AT_SYMLINK_NOFOLLOW);
    sync_named(from, path);
    int r = flags ? (int)syscall(SYS_renameat2, from, path, to, to_path, flags)
                  : (int)syscall(SYS_renameat, from, path, to, to_path);
    if (r < 0)
        return r;
    if (!(flags & RENAME_EXCHANGE))
        sync_gone(&st);
    sync_note_folder(from, path);
    sync_note_folder(to, to_path);
    return r;
}

int renameat2(int from, const char *path, int to, const char *to_path, unsigned flags) {
    return sync_rename(from, path, to, to_path, flags);
}

int renameat(int from, const char *path, int to, const char *to_path) {
    return sync_rename(from, path, to, to_path, 0);
}

int rename(const char *path, const char *to_path) {
    return sync_rename(AT_FDCWD, path, AT_FDCWD, to_path, 0);
}

int unlinkat(int dir, const char *path, int flags) {
    struct stat st = {0};
    (void)fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW);
    int r = (int)syscall(SYS_unlinkat, dir, path, flags);
    if (r < 0)
        return r;
    sync_gone(&st);
    sync_note_folder(dir, path);
    return r;
}

int unlink(const char *path) {
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path) {
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int fdatasync(int fd) {
    return sync_do(SYS_fdatasync, fd, false);
}

int fsync(int fd) {
    return sync_do(SYS_fsync, fd, false);
}

int syncfs(int fd) {
    return sync_do(SYS_syncfs, fd, true);
}
