/* Operations on entries of directories and on what a file is, not on what it contains. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/defer.h"
#include "spawn/fuse/inner.h"

struct fd_path fd_path(int fd) {
    struct fd_path p;
    snprintf(p.text, sizeof(p.text), "%d", fd);
    return p;
}

/* Adds to the rights that are in effect one that is still permitted. */
static int fuse_raise(unsigned cap) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) < 0)
        return -errno;
    data[0].effective |= data[0].permitted & 1u << cap;
    return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

/*
 * The kernel of the vm has checked whether the user may do it, and knows all his groups; so this
 * decides only to whom a new file belongs.
 */
int fuse_become(const struct fuse_in_header *head) {
    setfsgid(head->gid);
    if (head->uid == 0)
        return 0;
    setfsuid(head->uid);
    return fuse_raise(CAP_DAC_OVERRIDE);
}

void fuse_return(void) {
    setfsuid(0);
    setfsgid(0);
}

void fuse_fill_attr(const struct statx *st, struct fuse_attr *ret) {
    *ret = (struct fuse_attr){
        .ino = st->stx_ino,
        .size = st->stx_size,
        .blocks = st->stx_blocks,
        .atime = (uint64_t)st->stx_atime.tv_sec,
        .mtime = (uint64_t)st->stx_mtime.tv_sec,
        .ctime = (uint64_t)st->stx_ctime.tv_sec,
        .atimensec = st->stx_atime.tv_nsec,
        .mtimensec = st->stx_mtime.tv_nsec,
        .ctimensec = st->stx_ctime.tv_nsec,
        .mode = st->stx_mode,
        .nlink = st->stx_nlink,
        .uid = st->stx_uid,
        .gid = st->stx_gid,
        .rdev = (uint32_t)makedev(st->stx_rdev_major, st->stx_rdev_minor),
        .blksize = st->stx_blksize,
    };
}

int fuse_enter(struct fuse_server *s, const struct node *dir, const char *name,
               struct fuse_entry_out *ret) {
    struct statx st;
    uint64_t id;
    int fd DEFER_CLOSE = openat(dir->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &st) < 0)
        return -errno;
    int r = nodes_add(&s->nodes, TAKE_FD(fd), &st, &id);
    if (r < 0)
        return r;
    *ret = (struct fuse_entry_out){.nodeid = id,
                                   .generation = nodes_get(&s->nodes, id)->generation,
                                   .entry_valid = FUSE_BELIEF_SECONDS,
                                   .attr_valid = FUSE_BELIEF_SECONDS};
    fuse_fill_attr(&st, &ret->attr);
    return sizeof(*ret);
}

static struct node *fuse_node(struct fuse_server *s, const struct fuse_request *r) {
    return nodes_get(&s->nodes, r->head.nodeid);
}

/* A directory, in which a name may be looked up. */
static struct node *fuse_dir(struct fuse_server *s, uint64_t id) {
    struct node *n = nodes_get(&s->nodes, id);
    return n && n->type == S_IFDIR ? n : NULL;
}

int fuse_lookup(struct fuse_server *s, const struct fuse_request *r) {
    struct node *dir = fuse_dir(s, r->head.nodeid);
    return dir ? fuse_enter(s, dir, r->name, fuse_body(s)) : -ESTALE;
}

static int fuse_attr_of(struct fuse_server *s, int fd) {
    struct fuse_attr_out *out = fuse_body(s);
    struct statx st;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st) < 0)
        return -errno;
    *out = (struct fuse_attr_out){.attr_valid = FUSE_BELIEF_SECONDS};
    fuse_fill_attr(&st, &out->attr);
    return sizeof(*out);
}

int fuse_getattr(struct fuse_server *s, const struct fuse_request *r) {
    const struct node *n = fuse_node(s, r);
    return n ? fuse_attr_of(s, n->fd) : -ESTALE;
}

/* ---- changing what a file is ---- */

static struct timespec fuse_time(uint32_t valid, uint32_t set, uint32_t now, uint64_t sec,
                                 uint32_t nsec) {
    long n = !(valid & set) ? UTIME_OMIT : valid & now ? UTIME_NOW : (long)nsec;
    return (struct timespec){.tv_sec = (time_t)sec, .tv_nsec = n};
}

static int fuse_resize(struct fuse_server *s, const struct node *n,
                       const struct fuse_setattr_in *in) {
    int fd = in->valid & FATTR_FH ? handles_get(&s->handles, in->fh, false) : -1;
    if (fd >= 0)
        return ftruncate(fd, (off_t)in->size);
    return n->type == S_IFREG ? truncate(fd_path(n->fd).text, (off_t)in->size)
                              : (errno = EINVAL, -1);
}

/* The owner comes first: a change of it clears bits of the mode. */
int fuse_setattr(struct fuse_server *s, const struct fuse_request *r) {
    const struct node *n = fuse_node(s, r);
    const struct fuse_setattr_in *in = &r->in.setattr;
    if (!n)
        return -ESTALE;
    struct fd_path path = fd_path(n->fd);
    if (in->valid & (FATTR_UID | FATTR_GID) &&
        fchownat(n->fd, "", in->valid & FATTR_UID ? in->uid : (uid_t)-1,
                 in->valid & FATTR_GID ? in->gid : (gid_t)-1, AT_EMPTY_PATH) < 0)
        return -errno;
    if (in->valid & FATTR_MODE && chmod(path.text, in->mode & 07777) < 0)
        return -errno;
    if (in->valid & FATTR_SIZE && fuse_resize(s, n, in) < 0)
        return -errno;
    if (in->valid & (FATTR_ATIME | FATTR_MTIME)) {
        const struct timespec times[] = {
            fuse_time(in->valid, FATTR_ATIME, FATTR_ATIME_NOW, in->atime, in->atimensec),
            fuse_time(in->valid, FATTR_MTIME, FATTR_MTIME_NOW, in->mtime, in->mtimensec)};
        if (utimensat(AT_FDCWD, path.text, times, 0) < 0)
            return -errno;
    }
    return fuse_attr_of(s, n->fd);
}

/* ---- entries ---- */

int fuse_readlink(struct fuse_server *s, const struct fuse_request *r) {
    const struct node *n = fuse_node(s, r);
    ssize_t len = n ? readlinkat(n->fd, "", fuse_body(s), PATH_MAX) : -1;
    return !n ? -ESTALE : len < 0 ? -errno : (int)len;
}

int fuse_symlink(struct fuse_server *s, const struct fuse_request *r) {
    const struct node *dir = fuse_dir(s, r->head.nodeid);
    if (!dir)
        return -ESTALE;
    int done = fuse_become(&r->head);
    if (done == 0 && symlinkat(r->second, dir->fd, r->name) < 0)
        done = -errno;
    fuse_return();
    return done < 0 ? done : fuse_enter(s, dir, r->name, fuse_body(s));
}

int fuse_mknod(struct fuse_server *s, const struct fuse_request *r) {
    const struct node *dir = fuse_dir(s, r->head.nodeid);
    if (!dir)
        return -ESTALE;
    int done = fuse_become(&r->head);
    if (done == 0 && mknodat(dir->fd, r->name, r->in.mknod.mode, r->in.mknod.rdev) < 0)
        done = -errno;
    fuse_return();
    return done < 0 ? done : fuse_enter(s, dir, r->name, fuse_body(s));
}

int fuse_mkdir(struct fuse_server *s, const struct fuse_request *r) {
    const struct node *dir = fuse_dir(s, r->head.nodeid);
    if (!dir)
        return -ESTALE;
    int done = fuse_become(&r->head);
    if (done == 0 && mkdirat(dir->fd, r->name, r->in.mkdir.mode) < 0)
        done = -errno;
    fuse_return();
    return done < 0 ? done : fuse_enter(s, dir, r->name, fuse_body(s));
}

static int fuse_remove(struct fuse_server *s, const struct fuse_request *r, int flags) {
    const struct node *dir = fuse_dir(s, r->head.nodeid);
    return !dir ? -ESTALE : unlinkat(dir->fd, r->name, flags) < 0 ? -errno : 0;
}

int fuse_unlink(struct fuse_server *s, const struct fuse_request *r) {
    return fuse_remove(s, r, 0);
}

int fuse_rmdir(struct fuse_server *s, const struct fuse_request *r) {
    return fuse_remove(s, r, AT_REMOVEDIR);
}

static int fuse_move(struct fuse_server *s, const struct fuse_request *r, uint64_t to_id,
                     uint32_t flags) {
    const struct node *from = fuse_dir(s, r->head.nodeid), *to = fuse_dir(s, to_id);
    if (!from || !to)
        return -ESTALE;
    return renameat2(from->fd, r->name, to->fd, r->second, flags) < 0 ? -errno : 0;
}

int fuse_rename(struct fuse_server *s, const struct fuse_request *r) {
    return fuse_move(s, r, r->in.rename.newdir, 0);
}

int fuse_rename2(struct fuse_server *s, const struct fuse_request *r) {
    return fuse_move(s, r, r->in.rename2.newdir, r->in.rename2.flags);
}

int fuse_link(struct fuse_server *s, const struct fuse_request *r) {
    const struct node *n = nodes_get(&s->nodes, r->in.link.oldnodeid);
    const struct node *dir = fuse_dir(s, r->head.nodeid);
    if (!n || !dir)
        return -ESTALE;
    if (linkat(AT_FDCWD, fd_path(n->fd).text, dir->fd, r->name, AT_SYMLINK_FOLLOW) < 0)
        return -errno;
    return fuse_enter(s, dir, r->name, fuse_body(s));
}

int fuse_statfs(struct fuse_server *s, const struct fuse_request *r) {
    const struct node *n = fuse_node(s, r);
    struct fuse_statfs_out *out = fuse_body(s);
    struct statfs st;
    if (!n)
        return -ESTALE;
    if (fstatfs(n->fd, &st) < 0)
        return -errno;
    *out = (struct fuse_statfs_out){.st = {.blocks = st.f_blocks,
                                           .bfree = st.f_bfree,
                                           .bavail = st.f_bavail,
                                           .files = st.f_files,
                                           .ffree = st.f_ffree,
                                           .bsize = (uint32_t)st.f_bsize,
                                           .namelen = (uint32_t)st.f_namelen,
                                           .frsize = (uint32_t)st.f_frsize}};
    return sizeof(*out);
}

/* ---- extended attributes ---- */

/* NULL: this kind of file has none. */
static const struct node *fuse_attributed(struct fuse_server *s, const struct fuse_request *r) {
    const struct node *n = fuse_node(s, r);
    return n && (n->type == S_IFREG || n->type == S_IFDIR) ? n : NULL;
}

int fuse_setxattr(struct fuse_server *s, const struct fuse_request *r) {
    const struct node *n = fuse_attributed(s, r);
    if (!n)
        return -EOPNOTSUPP;
    if (r->in.setxattr.size > r->size)
        return -EINVAL;
    return setxattr(fd_path(n->fd).text, r->name, r->data, r->in.setxattr.size,
                    (int)r->in.setxattr.flags) < 0
               ? -errno
               : 0;
}

/* `got` bytes are in the body, or would be if the kernel had given room. */
static int fuse_answer_xattr(struct fuse_server *s, const struct fuse_request *r, ssize_t got) {
    struct fuse_getxattr_out *out = fuse_body(s);
    if (got < 0)
        return -errno;
    if (r->in.getxattr.size > 0)
        return (int)got;
    *out = (struct fuse_getxattr_out){.size = (uint32_t)got};
    return sizeof(*out);
}

static size_t fuse_room(uint32_t wanted) {
    return wanted < FUSE_DATA_MAX ? wanted : FUSE_DATA_MAX;
}

int fuse_getxattr(struct fuse_server *s, const struct fuse_request *r) {
    const struct node *n = fuse_attributed(s, r);
    if (!n)
        return -EOPNOTSUPP;
    size_t room = fuse_room(r->in.getxattr.size);
    return fuse_answer_xattr(s, r, getxattr(fd_path(n->fd).text, r->name, fuse_body(s), room));
}

int fuse_listxattr(struct fuse_server *s, const struct fuse_request *r) {
    const struct node *n = fuse_attributed(s, r);
    if (!n)
        return -EOPNOTSUPP;
    size_t room = fuse_room(r->in.getxattr.size);
    return fuse_answer_xattr(s, r, listxattr(fd_path(n->fd).text, fuse_body(s), room));
}

int fuse_removexattr(struct fuse_server *s, const struct fuse_request *r) {
    const struct node *n = fuse_attributed(s, r);
    return !n ? -EOPNOTSUPP : removexattr(fd_path(n->fd).text, r->name) < 0 ? -errno : 0;
}
