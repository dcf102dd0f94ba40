/* Operations on what a file or a directory contains. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/defer.h"
#include "spawn/fuse/inner.h"

enum { OPEN_FLAGS = O_ACCMODE | O_APPEND | O_TRUNC | O_DSYNC | O_SYNC };

static struct node *contents_node(struct fuse_server *s, const struct fuse_request *r,
                                  uint32_t type) {
    struct node *n = nodes_get(&s->nodes, r->head.nodeid);
    return n && n->type == type ? n : NULL;
}

/* True if nothing has changed the file since it was opened last: its pages in the vm are right. */
static bool contents_are_known(struct node *n, int fd) {
    struct statx st;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_CTIME, &st) < 0)
        return false;
    bool same =
        st.stx_ctime.tv_sec == n->changed.tv_sec && st.stx_ctime.tv_nsec == n->changed.tv_nsec;
    n->changed = st.stx_ctime;
    return same;
}

static int contents_opened(struct fuse_server *s, struct node *n, int fd,
                           struct fuse_open_out *out) {
    bool known = n && contents_are_known(n, fd);
    int64_t id = handles_add(&s->handles, fd, false);
    if (id < 0)
        return (int)id;
    *out = (struct fuse_open_out){.fh = (uint64_t)id, .open_flags = known ? FOPEN_KEEP_CACHE : 0};
    return sizeof(*out);
}

/* Only regular files: to open any other would wait, or ask a driver of the host. */
int fuse_open(struct fuse_server *s, const struct fuse_request *r) {
    struct node *n = contents_node(s, r, S_IFREG);
    if (!n)
        return -EACCES;
    int flags = (int)r->in.open.flags & OPEN_FLAGS;
    int fd = open(fd_path(n->fd).text, flags | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? -errno : contents_opened(s, n, fd, fuse_body(s));
}

int fuse_create(struct fuse_server *s, const struct fuse_request *r) {
    const struct node *dir = contents_node(s, r, S_IFDIR);
    struct {
        struct fuse_entry_out entry;
        struct fuse_open_out open;
    } *out = fuse_body(s);
    if (!dir)
        return -ESTALE;
    int flags = (int)r->in.create.flags & (OPEN_FLAGS | O_EXCL);
    int done = fuse_become(&r->head), fd DEFER_CLOSE = -1;
    if (done == 0) {
        fd = openat(dir->fd, r->name, flags | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
                    r->in.create.mode & 07777);
        done = fd < 0 ? -errno : 0;
    }
    fuse_return();
    if (done == 0)
        done = fuse_enter(s, dir, r->name, &out->entry);
    if (done < 0)
        return done;
    struct node *n = nodes_get(&s->nodes, out->entry.nodeid);
    if (n->type != S_IFREG)
        done = -EACCES;
    else
        done = contents_opened(s, n, TAKE_FD(fd), &out->open);
    if (done < 0)
        nodes_forget(&s->nodes, out->entry.nodeid, 1);
    return done < 0 ? done : (int)sizeof(*out);
}

int fuse_read(struct fuse_server *s, const struct fuse_request *r) {
    int fd = handles_get(&s->handles, r->in.read.fh, false);
    size_t size = r->in.read.size < FUSE_DATA_MAX ? r->in.read.size : FUSE_DATA_MAX;
    if (fd < 0)
        return -EBADF;
    ssize_t n = pread(fd, fuse_body(s), size, (off_t)r->in.read.offset);
    return n < 0 ? -errno : (int)n;
}

int fuse_write(struct fuse_server *s, const struct fuse_request *r) {
    int fd = handles_get(&s->handles, r->in.write.fh, false);
    struct fuse_write_out *out = fuse_body(s);
    if (fd < 0)
        return -EBADF;
    if (r->in.write.size > r->size)
        return -EINVAL;
    ssize_t n = pwrite(fd, r->data, r->in.write.size, (off_t)r->in.write.offset);
    if (n < 0)
        return -errno;
    *out = (struct fuse_write_out){.size = (uint32_t)n};
    return sizeof(*out);
}

int fuse_release(struct fuse_server *s, const struct fuse_request *r) {
    handles_close(&s->handles, r->in.release.fh, false);
    return 0;
}

static int contents_sync(int fd, const struct fuse_request *r) {
    if (fd < 0)
        return -EBADF;
    int done = r->in.fsync.fsync_flags & FUSE_FSYNC_FDATASYNC ? fdatasync(fd) : fsync(fd);
    return done < 0 ? -errno : 0;
}

int fuse_fsync(struct fuse_server *s, const struct fuse_request *r) {
    return contents_sync(handles_get(&s->handles, r->in.fsync.fh, false), r);
}

int fuse_fallocate(struct fuse_server *s, const struct fuse_request *r) {
    const struct fuse_fallocate_in *in = &r->in.fallocate;
    int fd = handles_get(&s->handles, in->fh, false);
    if (fd < 0)
        return -EBADF;
    return fallocate(fd, (int)in->mode, (off_t)in->offset, (off_t)in->length) < 0 ? -errno : 0;
}

int fuse_lseek(struct fuse_server *s, const struct fuse_request *r) {
    const struct fuse_lseek_in *in = &r->in.lseek;
    int fd = handles_get(&s->handles, in->fh, false);
    if (fd < 0)
        return -EBADF;
    off_t at = lseek(fd, (off_t)in->offset, (int)in->whence);
    *(struct fuse_lseek_out *)fuse_body(s) = (struct fuse_lseek_out){.offset = (uint64_t)at};
    return at < 0 ? -errno : (int)sizeof(struct fuse_lseek_out);
}

int fuse_copy(struct fuse_server *s, const struct fuse_request *r) {
    const struct fuse_copy_file_range_in *in = &r->in.copy;
    int from = handles_get(&s->handles, in->fh_in, false);
    int to = handles_get(&s->handles, in->fh_out, false);
    off_t off_in = (off_t)in->off_in, off_out = (off_t)in->off_out;
    size_t len = in->len < INT32_MAX ? in->len : INT32_MAX;
    if (from < 0 || to < 0)
        return -EBADF;
    ssize_t n = copy_file_range(from, &off_in, to, &off_out, len, (unsigned)in->flags);
    *(struct fuse_write_out *)fuse_body(s) = (struct fuse_write_out){.size = (uint32_t)n};
    return n < 0 ? -errno : (int)sizeof(struct fuse_write_out);
}

/* ---- directories ---- */

int fuse_opendir(struct fuse_server *s, const struct fuse_request *r) {
    const struct node *n = contents_node(s, r, S_IFDIR);
    struct fuse_open_out *out = fuse_body(s);
    if (!n)
        return -ENOTDIR;
    int fd = open(fd_path(n->fd).text, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int64_t id = fd < 0 ? -errno : handles_add(&s->handles, fd, true);
    if (id < 0)
        return (int)id;
    *out = (struct fuse_open_out){.fh = (uint64_t)id};
    return sizeof(*out);
}

int fuse_releasedir(struct fuse_server *s, const struct fuse_request *r) {
    handles_close(&s->handles, r->in.release.fh, true);
    return 0;
}

int fuse_fsyncdir(struct fuse_server *s, const struct fuse_request *r) {
    return contents_sync(handles_get(&s->handles, r->in.fsync.fh, true), r);
}

/* As the kernel writes it. */
struct host_entry {
    uint64_t ino;
    int64_t off;
    uint16_t size;
    uint8_t type;
    char name[];
};

/* The entries of a directory that one answer has room for. */
struct listing {
    struct fuse_server *s;
    const struct node *dir;
    uint8_t *out;
    size_t room, used;
    bool has_attrs;
};

/* False: there is no room. An entry that has gone is listed without what it is. */
static bool listing_add(struct listing *l, const struct host_entry *e) {
    size_t len = strlen(e->name), head = l->has_attrs ? sizeof(struct fuse_entry_out) : 0;
    size_t size = head + FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + len);
    if (size > l->room - l->used)
        return false;
    uint8_t *at = l->out + l->used;
    memset(at, 0, size);
    bool is_self = strcmp(e->name, ".") == 0 || strcmp(e->name, "..") == 0;
    struct fuse_entry_out entry;
    if (l->has_attrs && !is_self && fuse_enter(l->s, l->dir, e->name, &entry) > 0)
        memcpy(at, &entry, sizeof(entry));
    const struct fuse_dirent dirent = {
        .ino = e->ino, .off = (uint64_t)e->off, .namelen = (uint32_t)len, .type = e->type};
    memcpy(at + head, &dirent, FUSE_NAME_OFFSET);
    memcpy(at + head + FUSE_NAME_OFFSET, e->name, len);
    l->used += size;
    return true;
}

static int contents_list(struct fuse_server *s, const struct fuse_request *r, bool has_attrs) {
    uint64_t buffer[1024];
    const struct node *dir = contents_node(s, r, S_IFDIR);
    int fd = dir ? handles_get(&s->handles, r->in.read.fh, true) : -1;
    size_t room = r->in.read.size < FUSE_DATA_MAX ? r->in.read.size : FUSE_DATA_MAX;
    struct listing l = {s, dir, fuse_body(s), room, 0, has_attrs};
    if (fd < 0)
        return -EBADF;
    if (lseek(fd, (off_t)r->in.read.offset, SEEK_SET) < 0)
        return -errno;
    for (;;) {
        long n = syscall(SYS_getdents64, fd, buffer, sizeof(buffer));
        if (n < 0)
            return l.used ? (int)l.used : -errno;
        for (long at = 0; at < n;) {
            const struct host_entry *e = (const void *)((const char *)buffer + at);
            if (!listing_add(&l, e))
                return (int)l.used;
            at += e->size;
        }
        if (n == 0)
            return (int)l.used;
    }
}

int fuse_readdir(struct fuse_server *s, const struct fuse_request *r) {
    return contents_list(s, r, false);
}

int fuse_readdirplus(struct fuse_server *s, const struct fuse_request *r) {
    return contents_list(s, r, true);
}
