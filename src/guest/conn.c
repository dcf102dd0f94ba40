#include "guest/conn.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/err.h"
#include "guest/calls.h"
#include "guest/cmd.h"
#include "guest/serial.h"
#include "guest/serve.h"
#include "guest/sys.h"
#include "guest/watch.h"

/*
 * Limits for one connection in one turn of the event loop, so that other connections are served
 * too.
 */
#define ROUNDS_MAX 8
#define FRAMES_MAX 32

/*
 * The input and output buffers of a connection share one memory mapping; untouched pages take no
 * memory.
 */
#define MAP_BYTES (OUT_CAP + FRAME_BYTES_MAX)

static void conn_ready(struct guest *g, struct source *src, uint32_t events);
static void conn_receive(struct guest *g, struct conn *c);
static bool handle_next(struct guest *g, struct conn *c);

static struct conn *free_slot(struct guest *g) {
    for (uint32_t i = 0; i < g->conn_end; i++)
        if (g->conns[i].src.fd < 0)
            return &g->conns[i];
    if (g->conn_end == CONN_MAX)
        return NULL;
    struct conn *c = &g->conns[g->conn_end++];
    c->src.fd = c->watcher.fd = -1;
    return c;
}

struct conn *conn_open(struct guest *g, int fd, bool is_serial) {
    struct conn *c = free_slot(g);
    struct serial *serial = c && is_serial ? serial_new() : NULL;
    uint8_t *map = MAP_FAILED;
    if (c && (serial || !is_serial))
        map = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        close(fd);
        return NULL;
    }
    memset(c, 0, sizeof(*c));
    c->src = (struct source){.fd = fd, .ready = conn_ready, .owner = c};
    c->watcher.fd = -1;
    c->out = map;
    c->in = FRAME_DECODER(map + OUT_CAP, FRAME_BYTES_MAX);
    c->serial = serial;
    c->armed = serial ? EPOLLIN | EPOLLOUT | EPOLLET : EPOLLIN;
    if (source_add(g, &c->src, c->armed) == 0)
        return c;
    source_close(g, &c->src);
    munmap(map, MAP_BYTES);
    return NULL;
}

static void drop_fds(struct conn *c, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        close_fd(&c->fds[i]);
    c->nfds -= n;
    memmove(c->fds, c->fds + n, c->nfds * sizeof(*c->fds));
}

static void drop_out_fds(struct conn *c) {
    for (uint32_t i = 0; i < c->out_nfds; i++)
        close(c->out_fds[i]);
    c->out_nfds = 0;
}

/*
 * Handles pending messages of the spawner before the guest reacts to the end of the creator's
 * connection. For a prepared box the spawner has sent "linger" (outlive the creator's connection)
 * before the creator got its connection, but the event loop may see the end of the creator's
 * connection first.
 */
static void hear_spawner(struct guest *g, const struct conn *creator) {
    for (uint32_t i = 0; i < g->conn_end; i++) {
        struct conn *c = &g->conns[i];
        if (c == creator || c->src.fd < 0 || !c->is_privileged)
            continue;
        conn_receive(g, c);
        while (handle_next(g, c))
            ;
    }
}

/* What the peer has asked for ends with it. */
static void forget_peer(struct guest *g, struct conn *c) {
    cmd_detach_all(g, c);
    watch_close(g, c);
    calls_forget(c);
    c->greeted = c->takes_calls = c->has_work = false;
    c->stalled_ns = 0;
}

/* The peer at the other end of a serial port is gone, or another one has come. */
static void conn_restart(struct guest *g, struct conn *c) {
    forget_peer(g, c);
    c->out_start = c->out_end = 0;
    serial_forget(c->serial);
}

void conn_close(struct guest *g, struct conn *c) {
    if (c->is_creator && !g->lingers)
        hear_spawner(g, c);
    if (c->is_creator && !g->lingers)
        _exit(0);
    forget_peer(g, c);
    drop_fds(c, c->nfds);
    drop_out_fds(c);
    source_close(g, &c->src);
    munmap(c->out, MAP_BYTES);
}

static size_t out_room(const struct conn *c) {
    return OUT_CAP - (c->out_end - c->out_start);
}

bool conn_has_room(const struct conn *c) {
    return out_room(c) >= REPLY_ROOM && c->out_nfds < OUT_FDS_MAX;
}

static uint8_t *out_at(struct conn *c) {
    if (c->out_start > 0 && OUT_CAP - c->out_end < REPLY_ROOM) {
        memmove(c->out, c->out + c->out_start, c->out_end - c->out_start);
        c->out_end -= c->out_start;
        c->out_start = 0;
    }
    return c->out + c->out_end;
}

uint8_t *conn_tail(struct conn *c, const struct frame_head *head, const void *msg, uint32_t tail) {
    uint8_t *at = out_at(c);
    size_t n = msg_encode_before(at, OUT_CAP - c->out_end, head, msg, tail);
    assert(n > 0 && n + tail <= OUT_CAP - c->out_end);
    c->out_end += n + tail;
    return at + n;
}

void guest_conn_send(struct conn *c, const struct frame_head *head, const void *msg) {
    conn_tail(c, head, msg, 0);
}

static void reply(struct conn *c, const struct frame *to, uint16_t type, const void *msg) {
    if (to->head.tag == 0)
        return;
    struct frame_head head = {.type = type, .id = to->head.id, .tag = to->head.tag};
    guest_conn_send(c, &head, msg);
}

void conn_ok(struct conn *c, const struct frame *to, uint64_t value) {
    reply(c, to, MSG_OK, &(struct msg_ok){value});
}

void guest_conn_refuse(struct conn *c, const struct frame *to, uint32_t code, const char *text) {
    struct msg_error e = {.code = code, .text = {text, (uint32_t)strlen(text)}};
    reply(c, to, MSG_ERROR, &e);
}

void conn_fail(struct conn *c, const struct frame *to, int number, const char *text) {
    struct msg_error e = {.number = (uint32_t)number, .text = {text, (uint32_t)strlen(text)}};
    reply(c, to, MSG_ERROR, &e);
}

/* Descriptors are sent with the next byte, so they arrive before or with their frame. */
bool conn_ok_with_fd(struct conn *c, const struct frame *to, int fd) {
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (copy < 0)
        return false;
    c->out_fds[c->out_nfds++] = copy;
    struct frame_head head = {.type = MSG_OK, .flags = 1, .id = to->head.id, .tag = to->head.tag};
    guest_conn_send(c, &head, &(struct msg_ok){0});
    return true;
}

/* False: more descriptors arrived than a frame may have; those above the limit are closed. */
static bool keep_fds(struct conn *c, struct msghdr *m) {
    bool sound = !(m->msg_flags & MSG_CTRUNC);
    for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(int));
            if (c->nfds < FRAME_FDS_MAX) {
                c->fds[c->nfds++] = fd;
            } else {
                close(fd);
                sound = false;
            }
        }
    }
    return sound;
}

/*
 * True for a temporary error of recvmsg() or sendmsg(), such as out of memory, which is EFAULT if a
 * page of the buffer is missing. The connection is kept then: closing it could end the machine.
 */
static bool is_passing(int number) {
    return number == EAGAIN || number == EINTR || number == ENOMEM || number == ENOBUFS ||
           number == EFAULT;
}

static ssize_t receive_bytes(struct conn *c, uint8_t *to, size_t room, bool *ret_sound) {
    char control[CMSG_SPACE(FRAME_FDS_MAX * sizeof(int))];
    struct iovec v = {to, room};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(c->src.fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n >= 0)
        *ret_sound = keep_fds(c, &m);
    return n;
}

/* Receives bytes of a socket. */
static void conn_receive(struct guest *g, struct conn *c) {
    uint8_t *to;
    bool sound = true;
    size_t room = frame_space(&c->in, &to);
    if (room == 0)
        return;
    ssize_t n = receive_bytes(c, to, room, &sound);
    if (n < 0 && is_passing(errno))
        return;
    if (n <= 0 || !sound) {
        conn_close(g, c);
        return;
    }
    frame_fed(&c->in, (size_t)n);
}

static ssize_t send_bytes(struct conn *c, const uint8_t *at, size_t n) {
    if (c->out_nfds == 0)
        return send(c->src.fd, at, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(OUT_FDS_MAX * sizeof(int))];
    } control = {0};
    struct iovec v = {(void *)at, n};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control};
    size_t bytes = c->out_nfds * sizeof(int);
    m.msg_controllen = (socklen_t)CMSG_SPACE(bytes);
    control.head.cmsg_level = SOL_SOCKET;
    control.head.cmsg_type = SCM_RIGHTS;
    control.head.cmsg_len = (socklen_t)CMSG_LEN(bytes);
    memcpy(CMSG_DATA(&control.head), c->out_fds, bytes);
    ssize_t done = sendmsg(c->src.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (done > 0)
        drop_out_fds(c);
    return done;
}

static void flush_serial(struct guest *g, struct conn *c) {
    c->out_start +=
        serial_send(c->serial, c->src.fd, c->out + c->out_start, c->out_end - c->out_start);
    if (c->out_start == c->out_end)
        c->out_start = c->out_end = 0;
    g->has_timers |= serial_waits(c->serial);
}

static void conn_flush(struct guest *g, struct conn *c) {
    size_t n = c->out_end - c->out_start;
    if (c->serial) {
        flush_serial(g, c);
        return;
    }
    if (n == 0)
        return;
    ssize_t done = send_bytes(c, c->out + c->out_start, n);
    if (done < 0 && !is_passing(errno)) {
        conn_close(g, c);
        return;
    }
    if (done > 0)
        c->out_start += (size_t)done;
    if (c->out_start == c->out_end)
        c->out_start = c->out_end = 0;
}

/* Sends an ERROR without a tag, which is about the connection itself, and closes it. */
static void say_why_and_close(struct guest *g, struct conn *c) {
    struct frame_head head = {.type = MSG_ERROR};
    struct msg_error e = {.code = ERR_INVALID,
                          .text = {"the host sent a malformed message to the guest", 46}};
    guest_conn_send(c, &head, &e);
    conn_flush(g, c);
    if (c->serial) {
        forget_peer(g, c);
        serial_shut(c->serial);
    } else if (c->src.fd >= 0) {
        conn_close(g, c);
    }
}

/* As frame_next(). */
static int next_frame(struct guest *g, struct conn *c, struct frame *ret) {
    if (!c->serial)
        return frame_next(&c->in, ret);
    enum port_got got;
    while ((got = serial_next(c->serial, ret)) == PORT_BEGIN || got == PORT_LOST)
        conn_restart(g, c);
    return got == PORT_FRAME;
}

/* Handles the next received frame. Returns false when no further frame can be handled now. */
static bool handle_next(struct guest *g, struct conn *c) {
    struct frame f;
    if (c->src.fd < 0 || !conn_has_room(c))
        return false;
    if (!c->stalled_ns) {
        int got = next_frame(g, c, &f);
        if (got == 0)
            return false;
        if (got < 0) {
            say_why_and_close(g, c);
            return false;
        }
        c->held = f;
    }
    f = c->held;
    uint32_t nfds = f.head.flags & FRAME_FDS_MASK;
    enum serve_result result = nfds > c->nfds ? SERVE_BROKEN : serve_frame(g, c, &f);
    if (result == SERVE_BROKEN)
        say_why_and_close(g, c);
    if (result != SERVE_DONE)
        return false;
    c->stalled_ns = 0;
    drop_fds(c, nfds);
    return true;
}

/* Gives the memory pages of a large frame back to the kernel. */
static void trim(struct conn *c) {
    if (c->in.start == c->in.end && c->in.end > 4 * MSG_CHUNK_MAX)
        madvise(c->out + OUT_CAP, FRAME_BYTES_MAX & ~4095u, MADV_DONTNEED);
}

void conn_drop_pages(struct conn *c) {
    if (c->in.start == c->in.end && c->out_start == c->out_end && !c->stalled_ns)
        madvise(c->out, MAP_BYTES, MADV_DONTNEED);
    if (c->serial && !c->stalled_ns)
        serial_drop_pages(c->serial);
}

/*
 * Sets the events that epoll waits for: only those that can be handled now. Calls epoll only if
 * they changed.
 */
static void rearm(struct guest *g, struct conn *c) {
    if (c->serial) /* its events are edge-triggered */
        return;
    uint32_t want = c->out_end > c->out_start ? EPOLLOUT : 0;
    if (conn_has_room(c) && !c->stalled_ns)
        want |= EPOLLIN;
    if (want == c->armed)
        return;
    c->armed = want;
    struct epoll_event ev = {.events = want, .data.ptr = &c->src};
    epoll_ctl(g->epoll, EPOLL_CTL_MOD, c->src.fd, &ev);
}

void conn_continue(struct guest *g, struct conn *c) {
    bool again = true;
    for (int round = 0; again && round < ROUNDS_MAX; round++) {
        again = c->serial && conn_has_room(c) && serial_receive(c->serial, c->src.fd);
        for (int i = 0; i < FRAMES_MAX && handle_next(g, c); i++)
            again = true;
        if (c->src.fd < 0)
            return;
        bool was_full = !conn_has_room(c);
        if (c->has_work)
            cmd_pump(g, c);
        watch_pump(g, c);
        conn_flush(g, c);
        if (c->src.fd < 0)
            return;
        /* Sending may have made room for messages that had to wait. */
        again = again || ((was_full || c->has_work) && conn_has_room(c));
    }
    g->has_backlog = g->has_backlog || again;
    trim(c);
    rearm(g, c);
}

static void conn_ready(struct guest *g, struct source *src, uint32_t events) {
    struct conn *c = src->owner;
    bool is_gone = events & (EPOLLHUP | EPOLLERR);
    if (c->serial)
        serial_wake(c->serial);
    else if (c->armed & EPOLLIN)
        conn_receive(g, c);
    else if (is_gone)
        conn_close(g, c);
}
