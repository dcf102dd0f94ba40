#include "spawn/disk/uppers.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/defer.h"
#include "base/fs/dir.h"
#include "base/parse.h"
#include "spawn/disk/quota.h"

enum { TRIES = 1024, STEP_ENTRIES = 64, CLOSE_MS = 5000 };

#define STEP_BYTES (64ll << 20) /* bytes of a large file that one step deletes */
/* first quota project id that tests use, just below the ids of boxes */
#define PROBE_FIRST 0x6fff0000u

/* Opens a directory, which must belong to this user, and makes it private. */
static int open_private(int dir, const char *name, bool make) {
    struct stat st;
    if (make && mkdirat(dir, name, 0700) < 0 && errno != EEXIST)
        return -1;
    int fd DEFER_CLOSE = dir_open(dir, name);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid() || fchmod(fd, 0700) < 0)
        return -1;
    return TAKE_FD(fd);
}

static bool open_places(struct uppers *u, bool make) {
    int all DEFER_CLOSE = open_private(u->store, "uppers", make);
    u->dir = all < 0 ? -1 : open_private(all, u->run, make);
    u->trash = u->dir < 0 ? -1 : open_private(u->dir, "trash", true);
    return u->trash >= 0;
}

static void close_places(struct uppers *u) {
    int all DEFER_CLOSE = dir_open(u->store, "uppers");
    if (u->dir >= 0)
        unlinkat(u->dir, "trash", AT_REMOVEDIR);
    if (all >= 0)
        unlinkat(all, u->run, AT_REMOVEDIR);
    unlinkat(u->store, "uppers", AT_REMOVEDIR);
    close_fd(&u->trash);
    close_fd(&u->dir);
}

static bool uppers_make_file(int dir, const char *name) {
    int fd DEFER_CLOSE = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return fd >= 0;
}

/*
 * Tests that quotas are enforced, not only counted: with a limit of two inodes (the directory and
 * one file), a second file must be refused.
 */
static bool holds(struct uppers *u, uint32_t first) {
    struct err err;
    uint32_t project;
    int dir DEFER_CLOSE = uppers_new(u, first, 1 << 20, 2, &project, &err);
    if (dir < 0)
        return false;
    bool held = uppers_make_file(dir, "fits") && !uppers_make_file(dir, "does-not") &&
                (errno == EDQUOT || errno == ENOSPC);
    uppers_bury(u, project);
    return held;
}

static void uppers_begin(struct uppers *u, int store, const char *run) {
    *u = UPPERS_NONE;
    u->store = store;
    snprintf(u->run, sizeof(u->run), "%s", run);
}

void uppers_open_bare(struct uppers *u, int store, const char *run) {
    uppers_begin(u, store, run);
    u->bare = true;
    if (!open_places(u, true))
        close_fd(&u->dir);
}

void uppers_open(struct uppers *u, int store, const char *run) {
    uppers_begin(u, store, run);
    uint32_t first = PROBE_FIRST + (uint32_t)(strtoul(run, NULL, 16) & 0x7fff);
    bool counted = quota_unused(store, first) >= 0;
    /* Quotas do not work now, but directories from a time when they did may still exist. */
    if (!open_places(u, counted)) {
        close_fd(&u->dir);
        return;
    }
    u->limited = counted && holds(u, first);
}

static int fill_project(struct uppers *u, const char *name, uint32_t project, uint64_t bytes,
                        uint64_t inodes) {
    int dir DEFER_CLOSE = dir_open(u->dir, name);
    if (dir < 0 || fchmod(dir, 0755) < 0)
        return -errno;
    if (u->bare)
        return TAKE_FD(dir);
    /*
     * Sets the limit before the directory joins the project, so that the directory never has no
     * limit.
     */
    int r = quota_limit(dir, project, bytes, inodes);
    if (r == 0)
        r = quota_assign(dir, project);
    return r < 0 ? r : TAKE_FD(dir);
}

int uppers_new(struct uppers *u, uint32_t first, uint64_t bytes, uint64_t inodes,
               uint32_t *ret_project, struct err *err) {
    for (uint32_t project = first; project - first < TRIES; project++) {
        char name[16];
        snprintf(name, sizeof(name), "%" PRIu32, project);
        if (!u->bare && quota_unused(u->dir, project) != 1)
            /* another spawner uses this project id, or its old files are still being deleted */
            continue;
        if (mkdirat(u->dir, name, 0700) < 0) {
            if (errno == EEXIST)
                continue;
            return err_sys(err, "cannot create a directory for a machine's changes");
        }
        int r = fill_project(u, name, project, bytes, inodes);
        if (r < 0) {
            uppers_bury(u, project);
            return err_num(err, r,
                           "cannot set the project quota of a directory for a machine's changes");
        }
        *ret_project = project;
        return r;
    }
    return err_set(err, ERR_LIMIT,
                   "all project ids from %" PRIu32 " are in use on the store's filesystem", first);
}

/*
 * Moves a file or directory to the trash directory under a new name, where it may replace an empty
 * directory.
 */
static bool throw_away(struct uppers *u, int dir, const char *name) {
    char number[24];
    int r;
    do {
        snprintf(number, sizeof(number), "%" PRIu64, u->next++);
        r = renameat(dir, name, u->trash, number);
    } while (r < 0 && (errno == ENOTEMPTY || errno == EEXIST));
    u->pending |= r == 0;
    return r == 0;
}

void uppers_bury(struct uppers *u, uint32_t project) {
    char name[16];
    if (!project || u->trash < 0)
        return;
    /* Remove the quota limit: the project id is free again when its last file is deleted. */
    if (!u->bare)
        quota_limit(u->dir, project, 0, 0);
    snprintf(name, sizeof(name), "%" PRIu32, project);
    throw_away(u, u->dir, name);
}

void uppers_sweep(struct uppers *u, bool (*in_use)(uint32_t project, void *arg), void *arg) {
    DIR *d DEFER(dir_close) = u->trash < 0 ? NULL : dir_list(u->dir, ".");
    for (struct dirent *e; d && (e = readdir(d));) {
        uint64_t project;
        if (parse_name(e->d_name, UINT32_MAX, &project) && project &&
            !in_use((uint32_t)project, arg))
            uppers_bury(u, (uint32_t)project);
    }
    u->pending = d != NULL;
}

/* Deletes a large file in pieces: each step truncates about STEP_BYTES of its blocks. */
static bool shorten(int dir, const char *name) {
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return false;
    long long held = (long long)st.st_blocks * 512;
    if (held <= STEP_BYTES)
        return false;
    int fd DEFER_CLOSE = openat(dir, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    long long piece = st.st_size / (held / STEP_BYTES + 1) + 1;
    return fd >= 0 && st.st_size >= piece && ftruncate(fd, st.st_size - piece) == 0;
}

/*
 * Deletes an entry. A directory that is not empty is moved up into the trash directory instead, so
 * that depth does not matter.
 */
static bool remove_entry(struct uppers *u, int dir, const char *name) {
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return true;
    if (errno != EISDIR && errno != EPERM)
        return false;
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
        return true;
    return errno == ENOTEMPTY && throw_away(u, dir, name);
}

/*
 * Opens the next directory in the trash. At the end of the list it starts again if the last pass
 * deleted something.
 */
static bool next_dir(struct uppers *u) {
    if (!u->listing) {
        u->listing = dir_list(u->trash, ".");
        u->progress = false;
    }
    struct dirent *e = u->listing ? readdir(u->listing) : NULL;
    while (e && is_dots(e->d_name))
        e = readdir(u->listing);
    if (!e) {
        dir_close(&u->listing);
        u->pending = u->progress;
        return false;
    }
    snprintf(u->name, sizeof(u->name), "%.20s", e->d_name);
    u->emptying = dir_list(u->trash, u->name);
    return u->emptying != NULL;
}

bool uppers_step(struct uppers *u) {
    if (!u->pending || (!u->emptying && !next_dir(u)))
        return u->pending;
    for (int i = 0; i < STEP_ENTRIES; i++) {
        struct dirent *e = readdir(u->emptying);
        if (!e) {
            dir_close(&u->emptying);
            u->progress |= unlinkat(u->trash, u->name, AT_REMOVEDIR) == 0;
            return true;
        }
        if (is_dots(e->d_name))
            continue;
        if (e->d_type != DT_DIR && shorten(dirfd(u->emptying), e->d_name)) {
            u->progress = true; /* the next pass continues to delete this file */
            return true;
        }
        u->progress |= remove_entry(u, dirfd(u->emptying), e->d_name);
    }
    return true;
}

void uppers_close(struct uppers *u) {
    if (u->dir < 0)
        return;
    for (uint64_t end = monotonic_ms() + CLOSE_MS; monotonic_ms() < end && uppers_step(u);)
        ;
    dir_close(&u->emptying);
    dir_close(&u->listing);
    close_places(u);
}
