#include "base/fdio.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/err.h"

void stdio_hold(void) {
    int fd;
    do
        fd = open("/dev/null", O_RDWR); /* no O_CLOEXEC: programs that we start need it too */
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

int write_all(int fd, const void *bytes, size_t len) {
    const char *p = bytes;
    while (len) {
        ssize_t n = write(fd, p, len);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

ssize_t read_file_at(int dir, const char *path, char *buf, size_t size) {
    int fd DEFER_CLOSE = openat(dir, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    size_t len = 0;
    while (len + 1 < size) {
        ssize_t n = read(fd, buf + len, size - 1 - len);
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        len += (size_t)n;
    }
    buf[len] = '\0';
    return (ssize_t)len;
}

int write_file_at(int dir, const char *path, const char *text) {
    int fd DEFER_CLOSE = openat(dir, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

int send_fds(int sock, const void *bytes, size_t len, const int *fds, size_t nfds) {
    char control[CMSG_SPACE(FDIO_MAX_FDS * sizeof(int))] = {0};
    struct iovec iov = {.iov_base = (void *)bytes, .iov_len = len};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (nfds > FDIO_MAX_FDS)
        return -EINVAL;
    if (nfds) {
        m.msg_control = control;
        m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
    }
    ssize_t n;
    do
        n = sendmsg(sock, &m, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

int recv_fds(int sock, void *buf, size_t size, struct fd_message *ret) {
    char control[CMSG_SPACE(FDIO_MAX_FDS * sizeof(int))];
    struct iovec iov = {.iov_base = buf, .iov_len = size};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control,
                       .msg_controllen = sizeof(control)};
    ssize_t n;
    do
        n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    *ret = (struct fd_message){.len = (size_t)n};
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(ret->fds + ret->nfds, CMSG_DATA(c), count * sizeof(int));
        ret->nfds += count;
    }
    if (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        fd_message_close(ret);
        return -EMSGSIZE;
    }
    return 0;
}

void fd_message_close(struct fd_message *m) {
    for (size_t i = 0; i < m->nfds; i++)
        if (m->fds[i] >= 0)
            close(m->fds[i]);
    m->nfds = 0;
}
