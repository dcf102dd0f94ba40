/* Functions of open files: read, write, seek, sizes, times, flags and rights. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/defer.h"
#include "cell/wasi/wasi_inner.h"

/* --- reading and writing --- */

/* A transfer in progress; at: offset in the file. */
struct wasi_move {
    struct wasi_fd *f;
    uint64_t at;
    uint32_t moved;
};

typedef ssize_t wasi_mover(const struct wasi_at *a, struct wasi_move *m, const struct wasi_iov *v);

static ssize_t wasi_host_result(ssize_t n) {
    return n < 0 ? -errno : n;
}

static ssize_t wasi_read_some(const struct wasi_at *a, struct wasi_move *m,
                              const struct wasi_iov *v) {
    ssize_t n;
    if (m->f->kind == KIND_STDIN)
        n = a->w->config.outside.read(a->w->config.outside.ctx, v->bytes, v->len);
    else if (m->f->kind == KIND_STREAM)
        n = wasi_host_result(recvfrom(m->f->host, v->bytes, v->len,
                                      m->f->flags & FDFLAG_NONBLOCK ? MSG_DONTWAIT : 0, NULL,
                                      NULL));
    else
        n = wasi_host_result(pread(m->f->host, v->bytes, v->len, (off_t)m->at));
    if (n > 0)
        wasi_note(a, v->at, (size_t)n);
    return n;
}

static ssize_t wasi_write_some(const struct wasi_at *a, struct wasi_move *m,
                               const struct wasi_iov *v) {
    const struct wasi_outside *o = &a->w->config.outside;
    if (m->f->kind == KIND_STDOUT || m->f->kind == KIND_STDERR)
        return o->write(o->ctx, m->f->kind == KIND_STDERR, v->bytes, v->len) ? (ssize_t)v->len
                                                                             : -ENOSPC;
    if (m->f->kind == KIND_STREAM)
        return wasi_host_result(
            sendto(m->f->host, v->bytes, v->len,
                   MSG_NOSIGNAL | (m->f->flags & FDFLAG_NONBLOCK ? MSG_DONTWAIT : 0), NULL, 0));
    if (m->f->is_read_only)
        return -EROFS;
    return wasi_host_result(pwrite(m->f->host, v->bytes, v->len, (off_t)m->at));
}

/* Moves buffer after buffer until one is not moved completely. */
static int wasi_move_all(const struct wasi_at *a, struct wasi_move *m, wasi_mover *mover) {
    uint32_t vector = wasi_u32(a, 1), count = wasi_u32(a, 2), left = WASI_TRANSFER_MAX;
    if (count > WASI_IOVS_MAX)
        return WASI_INVAL;
    if (m->at > INT64_MAX)
        return WASI_INVAL;
    for (uint32_t i = 0; i < count; i++) {
        struct wasi_iov v;
        int error = wasi_iov_at(a->c, vector, i, &left, &v);
        if (error)
            return m->moved ? WASI_OK : error;
        if (!v.len)
            continue;
        ssize_t n = mover(a, m, &v);
        if (n < 0)
            return m->moved ? WASI_OK : wasi_error((int)n);
        m->moved += (uint32_t)n;
        m->at += (uint64_t)n;
        if ((uint64_t)n < v.len || m->f->kind == KIND_STDIN || m->f->kind == KIND_STREAM)
            break;
    }
    return WASI_OK;
}

static int wasi_no_transfer(const struct wasi_fd *f) {
    return f->kind == KIND_DIR ? WASI_ISDIR : f->kind == KIND_LISTENER ? WASI_NOTSUP : WASI_OK;
}

/* After an append, the offset is at the end of the file. */
static void wasi_move_offset(const struct wasi_move *m, bool wrote) {
    struct stat st;
    if (m->f->kind != KIND_FILE)
        return;
    m->f->offset = m->at;
    if (wrote && (m->f->flags & FDFLAG_APPEND) && fstat(m->f->host, &st) == 0)
        m->f->offset = (uint64_t)st.st_size;
}

static int wasi_at_offset(const struct wasi_at *a, uint64_t right, wasi_mover *mover) {
    struct wasi_fd *f;
    int error =
        wasi_fd_at(a->w, wasi_u32(a, 0)) && wasi_fd_at(a->w, wasi_u32(a, 0))->kind == KIND_DIR
            ? WASI_ISDIR
            : wasi_fd_with(a->w, wasi_u32(a, 0), right, &f);
    if (!error)
        error = wasi_no_transfer(f);
    if (error)
        return error;
    struct wasi_move m = {.f = f, .at = f->offset};
    error = wasi_move_all(a, &m, mover);
    if (error)
        return error;
    wasi_move_offset(&m, mover == wasi_write_some);
    return wasi_put_number(a, wasi_u32(a, 3), m.moved, 4);
}

int wasi_fd_read(const struct wasi_at *a) {
    return wasi_at_offset(a, RIGHT_FD_READ, wasi_read_some);
}

int wasi_fd_write(const struct wasi_at *a) {
    return wasi_at_offset(a, RIGHT_FD_WRITE, wasi_write_some);
}

/* Finds the descriptor of a function that works only on files. */
static int wasi_file_with(const struct wasi_at *a, uint64_t rights, int other,
                          struct wasi_fd **ret) {
    struct wasi_fd *f = wasi_fd_at(a->w, wasi_u32(a, 0));
    if (f && f->kind == KIND_DIR)
        return WASI_ISDIR;
    int error = wasi_fd_with(a->w, wasi_u32(a, 0), rights, &f);
    if (!error && f->kind != KIND_FILE)
        error = other;
    *ret = f;
    return error;
}

static int wasi_at_position(const struct wasi_at *a, uint64_t right, wasi_mover *mover) {
    struct wasi_fd *f;
    int error = wasi_file_with(a, right | RIGHT_FD_SEEK, WASI_SPIPE, &f);
    if (error)
        return error;
    struct wasi_move m = {.f = f, .at = wasi_u64(a, 3)};
    error = wasi_move_all(a, &m, mover);
    return error ? error : wasi_put_number(a, wasi_u32(a, 4), m.moved, 4);
}

int wasi_fd_pread(const struct wasi_at *a) {
    return wasi_at_position(a, RIGHT_FD_READ, wasi_read_some);
}

int wasi_fd_pwrite(const struct wasi_at *a) {
    return wasi_at_position(a, RIGHT_FD_WRITE, wasi_write_some);
}

/* --- position and size --- */

static int wasi_seek_base(const struct wasi_at *a, const struct wasi_fd *f, uint64_t *ret) {
    enum { SET, CUR, END };
    static const uint8_t unstable[] = {CUR, END, SET};
    uint32_t whence = wasi_u32(a, 2);
    struct stat st;
    if (whence > 2)
        return WASI_INVAL;
    if (a->c->is_unstable)
        whence = unstable[whence];
    *ret = whence == CUR ? f->offset : 0;
    if (whence == END) {
        if (fstat(f->host, &st) < 0)
            return wasi_error(-errno);
        *ret = (uint64_t)st.st_size;
    }
    return WASI_OK;
}

int wasi_fd_seek(const struct wasi_at *a) {
    struct wasi_fd *f;
    int64_t by = (int64_t)wasi_u64(a, 1), target;
    uint64_t base;
    bool stays = by == 0 && wasi_u32(a, 2) == (a->c->is_unstable ? 0u : 1u);
    int error = wasi_file_with(a, stays ? RIGHT_FD_TELL : RIGHT_FD_SEEK, WASI_SPIPE, &f);
    if (!error)
        error = wasi_seek_base(a, f, &base);
    if (error)
        return error;
    if (__builtin_add_overflow((int64_t)base, by, &target) || target < 0)
        return WASI_INVAL;
    error = wasi_put_number(a, wasi_u32(a, 3), (uint64_t)target, 8);
    if (!error)
        f->offset = (uint64_t)target;
    return error;
}

int wasi_fd_tell(const struct wasi_at *a) {
    struct wasi_fd *f;
    int error = wasi_file_with(a, RIGHT_FD_TELL, WASI_SPIPE, &f);
    return error ? error : wasi_put_number(a, wasi_u32(a, 1), f->offset, 8);
}

int wasi_fd_filestat_set_size(const struct wasi_at *a) {
    struct wasi_fd *f;
    int error = wasi_file_with(a, RIGHT_FD_FILESTAT_SET_SIZE, WASI_INVAL, &f);
    if (error)
        return error;
    if (wasi_u64(a, 1) > INT64_MAX)
        return WASI_INVAL;
    if (f->is_read_only)
        return WASI_ROFS;
    return ftruncate(f->host, (off_t)wasi_u64(a, 1)) < 0 ? wasi_error(-errno) : WASI_OK;
}

int wasi_fd_allocate(const struct wasi_at *a) {
    struct wasi_fd *f;
    uint64_t at = wasi_u64(a, 1), len = wasi_u64(a, 2);
    int error = wasi_file_with(a, RIGHT_FD_ALLOCATE, WASI_SPIPE, &f);
    if (error)
        return error;
    if (at > INT64_MAX || len > INT64_MAX || !len)
        return WASI_INVAL;
    if (f->is_read_only)
        return WASI_ROFS;
    return fallocate(f->host, 0, (off_t)at, (off_t)len) < 0 ? wasi_error(-errno) : WASI_OK;
}

int wasi_fd_advise(const struct wasi_at *a) {
    struct wasi_fd *f;
    uint64_t at = wasi_u64(a, 1), len = wasi_u64(a, 2);
    int error = wasi_file_with(a, RIGHT_FD_ADVISE, WASI_SPIPE, &f);
    if (error)
        return error;
    /* Advice is for speed only, so it is checked and not passed on. */
    return at > INT64_MAX || len > INT64_MAX || wasi_u32(a, 3) > 5 ? WASI_INVAL : WASI_OK;
}

static int wasi_flush(const struct wasi_at *a, uint64_t right, int (*sync)(int)) {
    struct wasi_fd *f;
    int error = wasi_fd_with(a->w, wasi_u32(a, 0), right, &f);
    if (error || (f->kind != KIND_FILE && f->kind != KIND_DIR))
        return error;
    return sync(f->host) < 0 ? wasi_error(-errno) : WASI_OK;
}

int wasi_fd_sync(const struct wasi_at *a) {
    return wasi_flush(a, RIGHT_FD_SYNC, fsync);
}

int wasi_fd_datasync(const struct wasi_at *a) {
    return wasi_flush(a, RIGHT_FD_DATASYNC, fdatasync);
}

/* --- attributes --- */

static enum wasi_filetype wasi_mode_type(mode_t mode) {
    switch (mode & S_IFMT) {
    case S_IFREG:
        return FILETYPE_REGULAR;
    case S_IFDIR:
        return FILETYPE_DIRECTORY;
    case S_IFLNK:
        return FILETYPE_SYMLINK;
    case S_IFCHR:
        return FILETYPE_CHARACTER;
    case S_IFBLK:
        return FILETYPE_BLOCK;
    case S_IFSOCK:
        return FILETYPE_SOCKET_STREAM;
    default:
        return FILETYPE_UNKNOWN;
    }
}

static enum wasi_filetype wasi_fd_type(const struct wasi *w, const struct wasi_fd *f) {
    switch (f->kind) {
    case KIND_FILE:
        return FILETYPE_REGULAR;
    case KIND_DIR:
        return FILETYPE_DIRECTORY;
    case KIND_LISTENER:
    case KIND_STREAM:
        return FILETYPE_SOCKET_STREAM;
    case KIND_STDIN:
    case KIND_STDOUT:
        return w->config.is_terminal[f->kind == KIND_STDOUT] ? FILETYPE_CHARACTER
                                                             : FILETYPE_UNKNOWN;
    default:
        return FILETYPE_UNKNOWN;
    }
}

static uint64_t wasi_nanoseconds(const struct timespec *t) {
    return (uint64_t)t->tv_sec * 1000000000 + (uint64_t)t->tv_nsec;
}

int wasi_put_filestat(const struct wasi_at *a, uint32_t at, const struct stat *st,
                      enum wasi_filetype type) {
    uint8_t out[64] = {0};
    /* "wasi_unstable" has 32 bits for the number of links, right behind the type. */
    const bool old = a->c->is_unstable;
    uint8_t *rest = old ? out + 24 : out + 32;
    wasi_set_number(out, st->st_dev, 8);
    wasi_set_number(out + 8, st->st_ino, 8);
    out[16] = (uint8_t)(type ? type : wasi_mode_type(st->st_mode));
    wasi_set_number(old ? out + 20 : out + 24, st->st_nlink, old ? 4 : 8);
    wasi_set_number(rest, (uint64_t)st->st_size, 8);
    wasi_set_number(rest + 8, wasi_nanoseconds(&st->st_atim), 8);
    wasi_set_number(rest + 16, wasi_nanoseconds(&st->st_mtim), 8);
    wasi_set_number(rest + 24, wasi_nanoseconds(&st->st_ctim), 8);
    return wasi_put(a, at, out, old ? 56 : 64);
}

int wasi_fd_filestat_get(const struct wasi_at *a) {
    struct wasi_fd *f;
    struct stat st = {0};
    int error = wasi_fd_with(a->w, wasi_u32(a, 0), RIGHT_FD_FILESTAT_GET, &f);
    if (error)
        return error;
    if ((f->kind == KIND_FILE || f->kind == KIND_DIR) && fstat(f->host, &st) < 0)
        return wasi_error(-errno);
    return wasi_put_filestat(a, wasi_u32(a, 1), &st, wasi_fd_type(a->w, f));
}

/* Sets one time: to a value, to the present, or not at all. */
static void wasi_one_time(const struct wasi_at *a, uint64_t ns, bool is_set, bool is_now,
                          struct timespec *ret) {
    *ret = (struct timespec){.tv_nsec = UTIME_OMIT};
    if (is_now && !a->w->config.has_clock)
        ns = wasi_clock_now(a, CLOCK_ID_REALTIME);
    if (is_now && a->w->config.has_clock)
        ret->tv_nsec = UTIME_NOW;
    else if (is_set || is_now)
        *ret = (struct timespec){.tv_sec = (time_t)(ns / 1000000000),
                                 .tv_nsec = (long)(ns % 1000000000)};
}

int wasi_times(const struct wasi_at *a, int first, struct timespec ret[2]) {
    uint32_t flags = wasi_u32(a, first + 2);
    if ((flags & (FST_ATIM | FST_ATIM_NOW)) == (FST_ATIM | FST_ATIM_NOW) ||
        (flags & (FST_MTIM | FST_MTIM_NOW)) == (FST_MTIM | FST_MTIM_NOW) || flags > 15)
        return WASI_INVAL;
    wasi_one_time(a, wasi_u64(a, first), flags & FST_ATIM, flags & FST_ATIM_NOW, &ret[0]);
    wasi_one_time(a, wasi_u64(a, first + 1), flags & FST_MTIM, flags & FST_MTIM_NOW, &ret[1]);
    return WASI_OK;
}

int wasi_fd_filestat_set_times(const struct wasi_at *a) {
    struct wasi_fd *f;
    struct timespec times[2];
    int error = wasi_fd_with(a->w, wasi_u32(a, 0), RIGHT_FD_FILESTAT_SET_TIMES, &f);
    if (!error)
        error = wasi_times(a, 1, times);
    if (error)
        return error;
    if (f->is_read_only)
        return WASI_ROFS;
    return futimens(f->host, times) < 0 ? wasi_error(-errno) : WASI_OK;
}

int wasi_fd_fdstat_get(const struct wasi_at *a) {
    struct wasi_fd *f = wasi_fd_at(a->w, wasi_u32(a, 0));
    uint8_t out[24] = {0};
    if (!f || f->kind == KIND_STALE)
        return f ? WASI_STALE : WASI_BADF;
    out[0] = (uint8_t)wasi_fd_type(a->w, f);
    wasi_set_number(out + 2, f->flags, 2);
    wasi_set_number(out + 8, f->base, 8);
    wasi_set_number(out + 16, f->inheriting, 8);
    return wasi_put(a, wasi_u32(a, 1), out, sizeof(out));
}

int wasi_fd_fdstat_set_flags(const struct wasi_at *a) {
    struct wasi_fd *f;
    uint32_t flags = wasi_u32(a, 1);
    const uint32_t fixed = FDFLAG_DSYNC | FDFLAG_RSYNC | FDFLAG_SYNC;
    int error = wasi_fd_with(a->w, wasi_u32(a, 0), RIGHT_FD_FDSTAT_SET_FLAGS, &f);
    if (error)
        return error;
    if (flags & ~(uint32_t)FDFLAG_ALL)
        return WASI_INVAL;
    /* The kernel fixes these when a file is opened. */
    if ((flags ^ f->flags) & fixed)
        return WASI_NOTSUP;
    if (f->kind == KIND_FILE && ((flags ^ f->flags) & FDFLAG_APPEND) &&
        fcntl(f->host, F_SETFL, flags & FDFLAG_APPEND ? O_APPEND : 0) < 0)
        return wasi_error(-errno);
    f->flags = (uint16_t)flags;
    return WASI_OK;
}

int wasi_fd_fdstat_set_rights(const struct wasi_at *a) {
    struct wasi_fd *f;
    uint64_t base = wasi_u64(a, 1), inheriting = wasi_u64(a, 2);
    int error = wasi_fd_with(a->w, wasi_u32(a, 0), 0, &f);
    if (error)
        return error;
    if ((base & ~f->base) || (inheriting & ~f->inheriting))
        return WASI_NOTCAPABLE;
    f->base = base;
    f->inheriting = inheriting;
    return WASI_OK;
}
