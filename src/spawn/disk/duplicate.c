#include "spawn/disk/duplicate.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "base/map.h"
#include "spawn/disk/btrfs.h"
#include "spawn/disk/room.h"
#include "spawn/disk/tree.h"

enum { PATH_SIZE = 4096, DEPTH_MAX = 200, VALUE_MAX = 65536, LINKS_MAX = 65536, PIECE = 1 << 18 };

/* A file that was already copied and has further hard links in the source. */
struct link {
    char key[48];
    char path[];
};

struct copying {
    int out;          /* top directory of the copy; paths in `links` are relative to it */
    struct map links; /* key (device and inode of the source) -> struct link */
    unsigned depth;
    char *piece;       /* buffer for file content */
    struct room *room; /* space that the copy may still take; NULL: limited by the disk only */
    bool shared;
};

void copying_free(struct copying *c) {
    if (!c)
        return;
    struct link *l;
    for (size_t at = 0; (l = map_next(&c->links, &at));)
        free(l);
    map_done(&c->links);
    free(c->piece);
    close_fd(&c->out);
    free(c);
}

static void copying_freep(struct copying **c) {
    copying_free(*c);
}

struct copying *copying_new(int out) {
    struct copying *c = calloc(1, sizeof(*c));
    char *piece = malloc(PIECE);
    int top = fcntl(out, F_DUPFD_CLOEXEC, 3);
    if (!c || !piece || top < 0) {
        close_fd(&top);
        free(piece);
        free(c);
        return NULL;
    }
    *c = (struct copying){.out = top, .piece = piece, .shared = true};
    return c;
}

/* ---- attributes ---- */

/*
 * True for the overlay attribute "origin". It refers to a file on the source disk, so it is not
 * copied.
 */
static bool is_local(const char *name) {
    static const char *const marks[] = {"trusted.overlay.origin", "user.overlay.origin"};
    return strcmp(name, marks[0]) == 0 || strcmp(name, marks[1]) == 0;
}

static int copy_attributes(struct copying *c, int from, int to) {
    char *names DEFER_FREE = malloc(VALUE_MAX), *value DEFER_FREE = malloc(VALUE_MAX);
    ssize_t n = names && value ? flistxattr(from, names, VALUE_MAX) : -1;
    if (n < 0)
        return !names || !value ? -ENOMEM : errno == EOPNOTSUPP ? 0 : -errno;
    for (const char *name = names; name < names + n; name += strlen(name) + 1) {
        ssize_t size = is_local(name) ? -1 : fgetxattr(from, name, value, VALUE_MAX);
        int r = size < 0 ? 0 : room_take(c->room, 0, (uint64_t)size);
        if (r < 0 || (size >= 0 && fsetxattr(to, name, value, (size_t)size, 0) < 0))
            return r < 0 ? r : -errno;
    }
    return 0;
}

/*
 * Copies owner, mode, extended attributes and times of a file. chown comes first, because it clears
 * set-id bits; attributes come later, because chown and chmod may clear them.
 */
static int dress(struct copying *c, int from, int to, const struct stat *st) {
    if (fchown(to, st->st_uid, st->st_gid) < 0 || fchmod(to, st->st_mode & 07777) < 0)
        return -errno;
    int r = copy_attributes(c, from, to);
    const struct timespec times[2] = {st->st_atim, st->st_mtim};
    return r < 0 ? r : futimens(to, times) < 0 ? -errno : 0;
}

/* ---- data ---- */

static int copy_piece(struct copying *c, int from, int to, off_t at, size_t len) {
    ssize_t n = pread(from, c->piece, len, at);
    if (n <= 0)
        /* n is 0: an I/O error, because files of a frozen layer never shrink */
        return n < 0 ? -errno : -EIO;
    int r = room_take(c->room, 0, (uint64_t)n);
    if (r < 0)
        return r;
    for (ssize_t done = 0; done < n;) {
        ssize_t w = pwrite(to, c->piece + done, (size_t)(n - done), at + done);
        if (w < 0)
            return -errno;
        done += w;
    }
    return (int)n;
}

static int copy_range(struct copying *c, int from, int to, off_t at, off_t end) {
    while (at < end) {
        off_t left = end - at;
        int n = copy_piece(c, from, to, at, left < PIECE ? (size_t)left : PIECE);
        if (n < 0)
            return n;
        at += n;
    }
    return 0;
}

/* Copies only the data of a sparse file, so holes stay holes. */
static int copy_data(struct copying *c, int from, int to, off_t size) {
    if (size == 0 || ioctl(to, FICLONE, from) == 0)
        return 0;
    c->shared = false;
    int r = ftruncate(to, size) < 0 ? -errno : 0;
    for (off_t at = 0; r == 0 && at < size;) {
        off_t data = lseek(from, at, SEEK_DATA);
        if (data < 0)
            return errno == ENXIO ? 0 : -errno;
        off_t hole = lseek(from, data, SEEK_HOLE);
        at = hole < 0 ? size : hole;
        r = copy_range(c, from, to, data, at);
    }
    return r;
}

/* ---- entries ---- */

/*
 * Identifies a file by device and inode, because each subvolume of a disk numbers its inodes anew.
 */
static void link_key(char key[48], const struct stat *st) {
    snprintf(key, 48, "%" PRIx64 ":%" PRIu64, (uint64_t)st->st_dev, (uint64_t)st->st_ino);
}

static int link_known(struct copying *c, const struct stat *st, int to, const char *name) {
    char key[48];
    link_key(key, st);
    const struct link *l = st->st_nlink > 1 ? map_get(&c->links, key) : NULL;
    if (!l)
        return 0;
    return linkat(c->out, l->path, to, name, 0) < 0 ? -errno : 1;
}

/*
 * Remembers a copied file, so that its further hard links are linked to the copy. If more than
 * LINKS_MAX files are remembered, each further link is copied as a separate file.
 */
static int link_note(struct copying *c, const struct stat *st, const char *path) {
    if (st->st_nlink < 2 || c->links.count >= LINKS_MAX || strlen(path) >= PATH_SIZE)
        return 0;
    struct link *l = malloc(sizeof(*l) + strlen(path) + 1);
    if (!l)
        return -ENOMEM;
    link_key(l->key, st);
    memcpy(l->path, path, strlen(path) + 1);
    map_put(&c->links, l->key, l);
    return 0;
}

static int copy_file(struct copying *c, int from, int to, const char *name, const struct stat *st) {
    int in DEFER_CLOSE = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int out DEFER_CLOSE =
        in < 0 ? -1 : openat(to, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (in < 0 || out < 0)
        return -errno;
    int r = copy_data(c, in, out, st->st_size);
    return r < 0 ? r : dress(c, in, out, st);
}

static int copy_symlink(struct copying *c, int from, int to, const char *name,
                        const struct stat *st) {
    char target[PATH_SIZE];
    ssize_t n = readlinkat(from, name, target, sizeof(target) - 1);
    if (n < 0)
        return -errno;
    target[n] = '\0';
    int r = room_take(c->room, 0, (uint64_t)n);
    if (r < 0)
        return r;
    const struct timespec times[2] = {st->st_atim, st->st_mtim};
    if (symlinkat(target, to, name) < 0 ||
        fchownat(to, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0 ||
        utimensat(to, name, times, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    return 0;
}

/*
 * Copies special files: whiteouts (deletion marks), pipes and sockets. A box cannot create special
 * files of other types.
 */
static int copy_node(int to, const char *name, const struct stat *st) {
    if (S_ISBLK(st->st_mode) || (S_ISCHR(st->st_mode) && st->st_rdev != 0))
        return -EPERM;
    if (mknodat(to, name, st->st_mode & (S_IFMT | 0600), 0) < 0 ||
        fchownat(to, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0 ||
        fchmodat(to, name, st->st_mode & 07777, 0) < 0)
        return -errno;
    return 0;
}

static int copy_dir(struct copying *c, int from, int to, const char *path);

static int copy_subdir(struct copying *c, int from, int to, const char *name, const char *path,
                       const struct stat *st) {
    if (c->depth >= DEPTH_MAX)
        return -ELOOP;
    int r = room_take(c->room, 1, 0);
    if (r < 0)
        return r;
    int in DEFER_CLOSE = dir_open(from, name);
    if (in < 0 || mkdirat(to, name, 0700) < 0)
        return -errno;
    int out DEFER_CLOSE = dir_open(to, name);
    if (out < 0)
        return -errno;
    c->depth++;
    r = copy_dir(c, in, out, path);
    c->depth--;
    return r < 0 ? r : dress(c, in, out, st);
}

static int copy_plain(struct copying *c, int from, int to, const char *name, const char *path,
                      const struct stat *st) {
    int r = link_known(c, st, to, name);
    if (r != 0)
        return r < 0 ? r : 0;
    r = room_take(c->room, 1, 0);
    if (r == 0)
        r = S_ISREG(st->st_mode)   ? copy_file(c, from, to, name, st)
            : S_ISLNK(st->st_mode) ? copy_symlink(c, from, to, name, st)
                                   : copy_node(to, name, st);
    return r < 0 ? r : link_note(c, st, path);
}

int copying_file(struct copying *c, int from, int to, const char *name, const char *path) {
    struct stat st;
    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    return S_ISDIR(st.st_mode) ? -EISDIR : copy_plain(c, from, to, name, path, &st);
}

static int copy_entry(struct copying *c, int from, int to, const char *name, const char *path) {
    struct stat st;
    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    return S_ISDIR(st.st_mode) ? copy_subdir(c, from, to, name, path, &st)
                               : copy_plain(c, from, to, name, path, &st);
}

static int copy_dir(struct copying *c, int from, int to, const char *path) {
    DIR *d DEFER(dir_close) = dir_list(from, ".");
    char *below DEFER_FREE = malloc(PATH_SIZE + 256);
    if (!d || !below)
        return d ? -ENOMEM : -errno;
    int r = 0;
    for (struct dirent *e; r == 0 && (e = readdir(d));) {
        if (is_dots(e->d_name))
            continue;
        snprintf(below, PATH_SIZE + 256, "%s%s%s", path, *path ? "/" : "", e->d_name);
        r = copy_entry(c, from, to, e->d_name, below);
    }
    return r;
}

/* ---- whole layers ---- */

static int copy_part(int from_disk, int to_disk, const char *from, const char *to,
                     struct room *room, bool *shared) {
    struct stat st;
    int in DEFER_CLOSE = dir_open(from_disk, from);
    if (in < 0)
        return in;
    if (fstat(in, &st) < 0 || mkdirat(to_disk, to, 0700) < 0)
        return -errno;
    int out DEFER_CLOSE = dir_open(to_disk, to);
    if (out < 0)
        return out;
    struct copying *c DEFER(copying_freep) = copying_new(out);
    if (!c)
        return -ENOMEM;
    c->room = room;
    int r = copy_dir(c, in, out, "");
    *shared &= c->shared;
    return r < 0 ? r : dress(c, in, out, &st);
}

int duplicate_done(int to_disk, uint32_t into) {
    char name[16];
    struct stat st;
    snprintf(name, sizeof(name), "%" PRIu32 "/u", into);
    return fstatat(to_disk, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? 1 : errno == ENOENT ? 0 : -errno;
}

int layer_hold(int disk, uint32_t number) {
    char name[16];
    snprintf(name, sizeof(name), "%" PRIu32, number);
    return dir_open_path(disk, name);
}

int layer_still(int disk, uint32_t number, int held) {
    struct stat was, is;
    int now DEFER_CLOSE = layer_hold(disk, number);
    if (now < 0)
        return now == -ENOENT ? -ESTALE : now;
    if (fstat(held, &was) < 0 || fstat(now, &is) < 0)
        return -errno;
    return was.st_dev == is.st_dev && was.st_ino == is.st_ino ? 0 : -ESTALE;
}

/*
 * Gives a finished copy its final name. If it must be durable, its content is synced before the
 * rename, so that a layer with its final name is complete on disk.
 */
static int duplicate_settle(int disk, const char *aside, const char *name, bool durable) {
    if (durable && syncfs(disk) < 0)
        return -errno;
    if (renameat(disk, aside, disk, name) < 0)
        return -errno;
    return durable && fsync(disk) < 0 ? -errno : 0;
}

static int copy_layer(int from_disk, int to_disk, const struct duplicate_plan *plan,
                      const char *aside, enum duplicate_way *ret_way) {
    static const char parts[] = "uU";
    char from[24], to[32];
    bool shared = true;
    struct room room = {0}, before = {0};
    int held DEFER_CLOSE = layer_hold(from_disk, plan->from);
    int r = held < 0 ? held : plan->durable ? room_left(from_disk, to_disk, &room) : 0;
    before = room;
    if (r == 0 && mkdirat(to_disk, aside, 0755) < 0)
        r = -errno;
    for (size_t i = 0; r == 0 && i < sizeof(parts) - 1; i++) {
        snprintf(from, sizeof(from), "%" PRIu32 "/%c", plan->from, parts[i]);
        snprintf(to, sizeof(to), "%s/%c", aside, parts[i]);
        r = copy_part(from_disk, to_disk, from, to, plan->durable ? &room : NULL, &shared);
    }
    *ret_way = shared ? DUPLICATE_REFLINK : DUPLICATE_COPY;
    if (r == 0 && plan->durable) {
        const struct room cost = {before.bytes - room.bytes, before.inodes - room.inodes};
        r = cost_write(to_disk, aside, &cost);
    }
    return r < 0 ? r : layer_still(from_disk, plan->from, held);
}

/*
 * Turns a snapshot of the disk into a layer: makes its top directory accessible, which boxes may
 * not enter on a disk, and moves the directories of the layer to the top. "u" is the last one:
 * processes of the box may write again once it is there.
 */
static int snapshot_layer(int disk, uint32_t number, const char *name, struct duplicated *ret) {
    static const char parts[] = "Uu";
    int r = btrfs_snapshot(disk, name);
    *ret = (struct duplicated){DUPLICATE_BTRFS, r < 0 ? 0 : btrfs_generation(disk)};
    int top DEFER_CLOSE = r < 0 ? -1 : dir_open(disk, name);
    if (r == 0 && (top < 0 || fchmod(top, 0755) < 0))
        r = top < 0 ? top : -errno;
    for (size_t i = 0; r == 0 && i < sizeof(parts) - 1; i++) {
        const char part[] = {parts[i], '\0'};
        char from[24];
        snprintf(from, sizeof(from), "%" PRIu32 "/%c", number, parts[i]);
        r = renameat(top, from, top, part) < 0 ? -errno : 0;
    }
    return r;
}

/* Removes an unfinished snapshot or directory, if it exists. */
static int clear_aside(int disk, const char *aside) {
    return btrfs_destroy(disk, aside) == 0 ? 0 : tree_remove(disk, aside);
}

const char *duplicate_way_name(enum duplicate_way way) {
    static const char *const names[] = {
        [DUPLICATE_COPY] = "copy", [DUPLICATE_REFLINK] = "reflink", [DUPLICATE_BTRFS] = "btrfs"};
    return names[way];
}

int duplicate_layer(int from_disk, int to_disk, const struct duplicate_plan *plan,
                    struct duplicated *ret) {
    char name[16], aside[24];
    struct duplicated made = {DUPLICATE_COPY, 0};
    snprintf(name, sizeof(name), "%" PRIu32, plan->into);
    snprintf(aside, sizeof(aside), "%s%s", name, plan->snapshot ? "" : ".new");
    int r = duplicate_done(to_disk, plan->into);
    if (r != 0)
        return r < 0 ? r : 0;
    r = clear_aside(to_disk, aside);
    if (r == 0)
        r = plan->snapshot ? snapshot_layer(to_disk, plan->from, name, &made)
                           : copy_layer(from_disk, to_disk, plan, aside, &made.way);
    if (r == 0 && !plan->snapshot)
        r = duplicate_settle(to_disk, aside, name, plan->durable);
    if (r < 0)
        clear_aside(to_disk, aside);
    else if (ret)
        *ret = made;
    return r;
}
