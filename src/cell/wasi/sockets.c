/* Functions of granted sockets. A program accepts connections; it cannot make sockets. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/defer.h"
#include "cell/wasi/wasi_inner.h"

static int wasi_socket_with(const struct wasi_at *a, enum wasi_kind kind, uint64_t rights,
                            struct wasi_fd **ret) {
    struct wasi_fd *f = wasi_fd_at(a->w, wasi_u32(a, 0));
    if (f && f->kind != KIND_LISTENER && f->kind != KIND_STREAM && f->kind != KIND_STALE)
        return WASI_NOTSOCK;
    int error = wasi_fd_with(a->w, wasi_u32(a, 0), rights, ret);
    if (!error && (*ret)->kind != kind)
        error = kind == KIND_STREAM ? WASI_NOTCONN : WASI_INVAL;
    return error;
}

int wasi_sock_accept(const struct wasi_at *a) {
    struct wasi_fd *f;
    uint32_t flags = wasi_u32(a, 1), fd;
    int error = wasi_socket_with(a, KIND_LISTENER, RIGHT_SOCK_ACCEPT, &f);
    if (error)
        return error;
    if (flags & ~(uint32_t)FDFLAG_NONBLOCK)
        return WASI_INVAL;
    int host = accept4(f->host, NULL, NULL, SOCK_CLOEXEC);
    if (host < 0)
        return wasi_error(-errno);
    struct wasi_fd made = {
        .kind = KIND_STREAM, .host = host, .base = f->inheriting, .flags = (uint16_t)flags};
    error = wasi_fd_add(a->w, &made, &fd);
    return error ? error : wasi_put_number(a, wasi_u32(a, 2), fd, 4);
}

/* Receives into the first buffer that has room. */
int wasi_sock_recv(const struct wasi_at *a) {
    enum { PEEK = 1, WAITALL = 2 };
    struct wasi_fd *f;
    struct wasi_iov v = {0};
    uint32_t flags = wasi_u32(a, 3), left = WASI_TRANSFER_MAX, i = 0;
    int error = wasi_socket_with(a, KIND_STREAM, RIGHT_FD_READ, &f);
    if (!error && (flags & ~(uint32_t)(PEEK | WAITALL)))
        error = WASI_INVAL;
    while (!error && !v.len && i < wasi_u32(a, 2) && i < WASI_IOVS_MAX)
        error = wasi_iov_at(a->c, wasi_u32(a, 1), i++, &left, &v);
    if (error)
        return error;
    int how = (flags & PEEK ? MSG_PEEK : 0) | (flags & WAITALL ? MSG_WAITALL : 0) |
              (f->flags & FDFLAG_NONBLOCK ? MSG_DONTWAIT : 0);
    ssize_t n = v.len ? recvfrom(f->host, v.bytes, v.len, how, NULL, NULL) : 0;
    if (n < 0)
        return wasi_error(-errno);
    wasi_note(a, v.at, (size_t)n);
    error = wasi_put_number(a, wasi_u32(a, 4), (uint64_t)n, 4);
    return error ? error : wasi_put_number(a, wasi_u32(a, 5), 0, 2);
}

int wasi_sock_send(const struct wasi_at *a) {
    struct wasi_fd *f;
    struct wasi_iov v = {0};
    uint32_t left = WASI_TRANSFER_MAX, i = 0;
    int error = wasi_socket_with(a, KIND_STREAM, RIGHT_FD_WRITE, &f);
    if (!error && wasi_u32(a, 3))
        error = WASI_INVAL; /* no flags are defined */
    while (!error && !v.len && i < wasi_u32(a, 2) && i < WASI_IOVS_MAX)
        error = wasi_iov_at(a->c, wasi_u32(a, 1), i++, &left, &v);
    if (error)
        return error;
    int how = MSG_NOSIGNAL | (f->flags & FDFLAG_NONBLOCK ? MSG_DONTWAIT : 0);
    ssize_t n = v.len ? sendto(f->host, v.bytes, v.len, how, NULL, 0) : 0;
    return n < 0 ? wasi_error(-errno) : wasi_put_number(a, wasi_u32(a, 4), (uint64_t)n, 4);
}

int wasi_sock_shutdown(const struct wasi_at *a) {
    static const int hows[] = {[1] = SHUT_RD, [2] = SHUT_WR, [3] = SHUT_RDWR};
    struct wasi_fd *f;
    uint32_t how = wasi_u32(a, 1);
    int error = wasi_socket_with(a, KIND_STREAM, RIGHT_SOCK_SHUTDOWN, &f);
    if (!error && (how < 1 || how > 3))
        error = WASI_INVAL;
    if (error)
        return error;
    return shutdown(f->host, hows[how]) < 0 ? wasi_error(-errno) : WASI_OK;
}

/* Functions that would make or name sockets. */
int wasi_refused(const struct wasi_at *a) {
    (void)a;
    return WASI_NOTSUP;
}
