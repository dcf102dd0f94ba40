/*
 * `connect PATH [MS]` copies between its standard streams and a unix socket of the machine, such as
 * that of its desktop. It tries again for MS milliseconds while nobody listens there. The end of
 * stdin ends the bytes of one direction only; the tool ends when the server closes the socket.
 *
 * All descriptors are non-blocking: a server that writes before it reads must not make the tool
 * wait in one direction while bytes of the other one could move.
 */
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "guest/sys.h"
#include "guest/tool.h"

/* One direction. Bytes at..end of the buffer were read and are not written yet. */
struct lane {
    int from, to;
    bool from_ended, done;
    size_t at, end;
    uint8_t bytes[64 << 10];
};

static struct lane in, out;

#define AGAIN_MS 20

static int connect_socket(const char *path, int64_t wait_ms) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if (n >= sizeof(a.sun_path))
        tool_fail(ENAMETOOLONG, "cannot connect to", path);
    memcpy(a.sun_path, path, n);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int64_t end = now_ns() + wait_ms * 1000000;
    while (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        if ((errno != ENOENT && errno != ECONNREFUSED) || now_ns() >= end)
            tool_fail(errno, "cannot connect to", path);
        poll(NULL, 0, AGAIN_MS);
    }
    return fd;
}

static void connect_unblock(int fd) {
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        tool_fail(errno, "cannot prepare", "descriptor");
}

static bool is_pending(ssize_t n) {
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* Moves what can be moved. -1: this direction broke. */
static int lane_move(struct lane *l) {
    if (l->at == l->end && !l->from_ended) {
        ssize_t n = read(l->from, l->bytes, sizeof(l->bytes));
        if (is_pending(n))
            return 0;
        l->at = 0;
        l->end = n > 0 ? (size_t)n : 0;
        l->from_ended = n <= 0;
    }
    while (l->at < l->end) {
        ssize_t n = write(l->to, l->bytes + l->at, l->end - l->at);
        if (is_pending(n))
            return 0;
        if (n <= 0)
            return -1;
        l->at += (size_t)n;
    }
    return 0;
}

static struct pollfd lane_poll(const struct lane *l) {
    bool has_bytes = l->at < l->end;
    if (l->done || (!has_bytes && l->from_ended))
        return (struct pollfd){.fd = -1};
    return (struct pollfd){.fd = has_bytes ? l->to : l->from,
                           .events = has_bytes ? POLLOUT : POLLIN};
}

int tool_connect(char **argv) {
    const char *path = argv[1];
    if (!path || path[0] != '/')
        tool_fail(EINVAL, "absolute path needed:", path ? path : "");
    int sock = connect_socket(path, argv[2] ? strtol(argv[2], NULL, 10) : 0);
    in.from = 0, in.to = sock;
    out.from = sock, out.to = 1;
    connect_unblock(0);
    connect_unblock(1);
    connect_unblock(sock);
    while (!(out.from_ended && out.at == out.end)) {
        struct pollfd wait[2] = {lane_poll(&in), lane_poll(&out)};
        if (poll(wait, 2, -1) < 0 && errno != EINTR)
            tool_fail(errno, "cannot wait for", path);
        /* A server that no longer reads may still have an answer to send. */
        in.done = in.done || lane_move(&in) < 0;
        if (!in.done && in.from_ended && in.at == in.end) {
            shutdown(sock, SHUT_WR);
            in.done = true;
        }
        if (lane_move(&out) < 0)
            return MSG_TOOL_FAILED;
    }
    return MSG_TOOL_DONE;
}
