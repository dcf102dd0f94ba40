#include "io/guest_link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/defer.h"
#include "io/link_port.h"

#define QUEUE_MAX (4u << 20)
#define PARCELS_MAX 32u
#define TRIM_BYTES (256u << 10)

/* Descriptors that wait to be sent with their frame. They are duplicates, which we own. */
struct parcel {
    size_t at, end; /* position of their frame in `out` */
    uint32_t nfds;
    int fds[FRAME_FDS_MAX];
};

struct guest_link {
    int sock;
    struct link_port *port; /* NULL: the socket leads to the guest itself */
    uint32_t tag;
    uint32_t features;
    uint64_t incarnation;
    struct buf out;
    size_t out_start;       /* bytes of `out` already sent */
    size_t owed;            /* end of the last frame whose descriptors were sent */
    struct parcel *parcels; /* room for PARCELS_MAX, allocated at first use */
    uint32_t parcel_count;
    guest_frame_fn *on_frame;
    void *on_frame_arg;
    int fds[FRAME_FDS_MAX]; /* received: those of the current frame first, then of later ones */
    uint32_t nfds;
    uint32_t current_fds; /* how many of `fds` belong to the current frame */
    struct frame_decoder in;
    uint8_t room[FRAME_BYTES_MAX];
};

/* Creation and release. */

static int queue(struct guest_link *l, const struct frame_head *head, const void *msg,
                 struct err *err);

/* Drops the oldest parcel. */
static void drop_parcel(struct guest_link *l) {
    for (uint32_t i = 0; i < l->parcels[0].nfds; i++)
        close(l->parcels[0].fds[i]);
    l->parcel_count--;
    memmove(l->parcels, l->parcels + 1, l->parcel_count * sizeof(*l->parcels));
}

struct guest_link *guest_link_adopt(int sock) {
    /* Not calloc: the pages of the buffer `room` should stay unused until they are needed. */
    struct guest_link *l = xmalloc(sizeof(*l));
    memset(l, 0, offsetof(struct guest_link, room));
    l->sock = sock;
    l->out = BUF(QUEUE_MAX + FRAME_BYTES_MAX);
    l->in = FRAME_DECODER(l->room, sizeof(l->room));
    struct frame_head head = {.type = MSG_HELLO};
    if (queue(l, &head, &(struct msg_hello){MSG_VERSION_OLDEST, MSG_FEATURE_CALLS, 0}, NULL) < 0)
        abort();
    return l;
}

struct guest_link *guest_link_adopt_port(int sock) {
    struct guest_link *l = guest_link_adopt(sock);
    l->port = link_port_new();
    return l;
}

struct guest_link *guest_link_connect(const char *path, struct err *err) {
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if (n >= sizeof(addr.sun_path)) {
        err_set(err, ERR_INVALID, "socket path '%s' is too long", path);
        return NULL;
    }
    memcpy(addr.sun_path, path, n + 1);
    int sock DEFER_CLOSE = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (sock < 0 || connect(sock, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        err_sys(err, "cannot connect to the guest at socket '%s'", path);
        return NULL;
    }
    return guest_link_adopt(TAKE_FD(sock));
}

static void drop_fds(struct guest_link *l, uint32_t n, bool is_taken) {
    for (uint32_t i = 0; i < n && !is_taken; i++)
        close(l->fds[i]);
    l->nfds -= n;
    memmove(l->fds, l->fds + n, l->nfds * sizeof(*l->fds));
}

void guest_link_free(struct guest_link *l) {
    if (!l)
        return;
    drop_fds(l, l->nfds, false);
    close(l->sock);
    while (l->parcel_count)
        drop_parcel(l);
    free(l->parcels);
    link_port_free(l->port);
    buf_done(&l->out);
    free(l);
}

void guest_link_freep(struct guest_link **l) {
    guest_link_free(*l);
}

void guest_link_hang_up(struct guest_link *l) {
    shutdown(l->sock, SHUT_RDWR);
}

int guest_link_fd(const struct guest_link *l) {
    return l->sock;
}

short guest_link_events(const struct guest_link *l) {
    return (short)(POLLIN | (guest_link_backlog(l) > 0 ? POLLOUT : 0));
}

uint32_t guest_link_features(const struct guest_link *l) {
    return l->features;
}

uint64_t guest_link_incarnation(const struct guest_link *l) {
    return l->incarnation;
}

void guest_link_on_frame(struct guest_link *l, guest_frame_fn *fn, void *arg) {
    l->on_frame = fn;
    l->on_frame_arg = arg;
}

/* Sending. */

static int queue(struct guest_link *l, const struct frame_head *head, const void *msg,
                 struct err *err) {
    uint8_t small[4096];
    size_t n = msg_encode(small, sizeof(small), head, msg);
    if (n > 0 && buf_add(&l->out, small, n))
        return 0;
    uint8_t *large DEFER_FREE = malloc(FRAME_BYTES_MAX);
    n = large ? msg_encode(large, FRAME_BYTES_MAX, head, msg) : 0;
    if (n == 0 || !buf_add(&l->out, large, n))
        return err_set(err, ERR_LIMIT, "message %s to the guest is too large",
                       msg_type_name(head->type));
    return 0;
}

/* Tries once to send the bytes before `end`. Returns bytes sent, 0 if the socket is full. */
static ssize_t send_some(struct guest_link *l, size_t end, const int *fds, uint32_t nfds,
                         struct err *err) {
    struct iovec v = {l->out.data + l->out_start, end - l->out_start};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(FRAME_FDS_MAX * sizeof(int))];
    } control;
    if (nfds > 0) {
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
        memset(&control, 0, sizeof(control));
        control.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(nfds * sizeof(int)),
                                        .cmsg_level = SOL_SOCKET,
                                        .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.head), fds, nfds * sizeof(int));
    }
    ssize_t n = sendmsg(l->sock, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0)
        return n;
    return errno == EAGAIN || errno == EINTR ? 0 : err_sys(err, "cannot send to the guest");
}

/*
 * Returns the parcel to send next, and up to which byte. Descriptors may be sent with frames before
 * their own, but only after the frame of the previous parcel: the guest keeps a limited number of
 * descriptors that no frame has claimed.
 */
static struct parcel *due_parcel(struct guest_link *l, size_t *ret_end) {
    bool owing = l->out_start < l->owed;
    uint32_t held_back = owing ? 0 : 1; /* index of the first parcel that must wait */
    *ret_end = l->out.len;
    if (l->parcel_count > held_back)
        *ret_end = owing ? l->owed : l->parcels[held_back].at;
    return owing || !l->parcel_count ? NULL : l->parcels;
}

static int flush_port(struct guest_link *l, struct err *err) {
    ssize_t n = link_port_send(l->port, l->sock, l->out.data + l->out_start,
                               l->out.len - l->out_start, err);
    if (n < 0)
        return -1;
    l->out_start += (size_t)n;
    if (l->out_start == l->out.len)
        l->out.len = l->out_start = 0;
    return 0;
}

int guest_link_flush(struct guest_link *l, struct err *err) {
    if (l->port)
        return flush_port(l, err);
    while (l->out_start < l->out.len) {
        size_t end;
        struct parcel *p = due_parcel(l, &end);
        ssize_t n = send_some(l, end, p ? p->fds : NULL, p ? p->nfds : 0, err);
        if (n <= 0)
            return (int)n;
        l->out_start += (size_t)n;
        if (p) {
            l->owed = p->end;
            drop_parcel(l);
        }
    }
    l->out.len = l->out_start = l->owed = 0;
    return 0;
}

/* Moves the unsent bytes to the front of the buffer. */
static void compact(struct guest_link *l) {
    size_t gone = l->out_start;
    if (gone == 0)
        return;
    memmove(l->out.data, l->out.data + gone, l->out.len - gone);
    for (uint32_t i = 0; i < l->parcel_count; i++) {
        l->parcels[i].at -= gone;
        l->parcels[i].end -= gone;
    }
    l->owed = l->owed > gone ? l->owed - gone : 0;
    l->out.len -= gone;
    l->out_start = 0;
}

int guest_link_queue(struct guest_link *l, const struct frame_head *head, const void *msg,
                     struct err *err) {
    if (l->out.len - l->out_start > QUEUE_MAX)
        return err_set(err, ERR_LIMIT,
                       "the guest does not read its messages: too many bytes are queued");
    compact(l);
    return queue(l, head, msg, err);
}

static int keep_parcel(struct guest_link *l, size_t at, const int *fds, uint32_t nfds,
                       struct err *err) {
    if (!l->parcels)
        l->parcels = calloc(PARCELS_MAX, sizeof(*l->parcels));
    if (!l->parcels || l->parcel_count == PARCELS_MAX)
        return err_set(err, ERR_LIMIT,
                       "the guest does not accept file descriptors: too many are queued");
    struct parcel *p = &l->parcels[l->parcel_count++];
    *p = (struct parcel){.at = at, .end = l->out.len};
    for (; p->nfds < nfds; p->nfds++) {
        p->fds[p->nfds] = fcntl(fds[p->nfds], F_DUPFD_CLOEXEC, 3);
        if (p->fds[p->nfds] >= 0)
            continue;
        err_sys(err, "cannot duplicate a file descriptor for the guest");
        while (p->nfds)
            close(p->fds[--p->nfds]);
        l->parcel_count--;
        return -1;
    }
    return 0;
}

/* Sends the descriptors of the last frame in the queue now if no others wait, else queues them. */
static int send_parcel(struct guest_link *l, size_t at, const int *fds, uint32_t nfds,
                       struct err *err) {
    ssize_t n = 0;
    if (!l->parcel_count && l->out_start >= l->owed)
        n = send_some(l, l->out.len, fds, nfds, err);
    if (n < 0)
        return -1;
    if (n > 0) {
        l->out_start += (size_t)n;
        l->owed = l->out.len;
        return 0;
    }
    if (keep_parcel(l, at, fds, nfds, err) == 0)
        return 0;
    l->out.len = at; /* removes the frame from the queue */
    return -1;
}

int guest_link_send(struct guest_link *l, const struct frame_head *head, const void *msg,
                    const int *fds, uint32_t nfds, struct err *err) {
    if (nfds > FRAME_FDS_MAX)
        return err_set(err, ERR_INVALID,
                       "%u file descriptors in one message to the guest are too many", nfds);
    if (nfds > 0 && l->port)
        return err_set(err, ERR_UNSUPPORTED,
                       "file descriptors cannot be passed to a vm: its serial port carries bytes");
    struct frame_head full = *head;
    full.flags = (uint16_t)(full.flags | nfds);
    compact(l);
    size_t at = l->out.len;
    if (guest_link_queue(l, &full, msg, err) < 0 ||
        (nfds > 0 && send_parcel(l, at, fds, nfds, err) < 0))
        return -1;
    return guest_link_flush(l, err);
}

size_t guest_link_backlog(const struct guest_link *l) {
    return l->out.len - l->out_start + (l->port ? link_port_backlog(l->port) : 0);
}

/* Receiving. */

static int take_hello(struct guest_link *l, const struct frame *f, struct err *err) {
    struct msg_hello hello;
    if (l->incarnation)
        return err_set(err, ERR_INTERNAL, "protocol error of the guest: it sent HELLO twice");
    if (msg_get_hello(f, &hello) < 0 || hello.version < MSG_VERSION_OLDEST ||
        hello.version > MSG_VERSION)
        return err_set(err, ERR_UNSUPPORTED,
                       "the guest uses another protocol version than this program");
    l->features = hello.features;
    l->incarnation = hello.incarnation;
    return 0;
}

int guest_link_error(const struct frame *f, struct err *err) {
    struct msg_error m;
    if (msg_get_error(f, &m) < 0)
        return err_set(err, ERR_INTERNAL, "unexpected answer %s from the guest",
                       msg_type_name(f->head.type));
    if (m.code > ERR_TIMEOUT)
        m.code = ERR_INTERNAL;
    if (m.code)
        return err_set(err, (enum err_code)m.code, "%s", m.text.s);
    errno = (int)m.number;
    return err_sys(err, "%s", m.text.s);
}

/* Closes the descriptors of the previous frame, so that those of this frame are at the front. */
static int claim_fds(struct guest_link *l, const struct frame *f, struct err *err) {
    drop_fds(l, l->current_fds, false);
    l->current_fds = f->head.flags & FRAME_FDS_MASK;
    if (l->current_fds <= l->nfds)
        return 0;
    l->current_fds = 0;
    return err_set(err, ERR_INTERNAL, "protocol error of the guest: file descriptors are missing");
}

uint32_t guest_link_take_fds(struct guest_link *l, const struct frame *f, int *ret, uint32_t max) {
    (void)f;
    uint32_t n = l->current_fds < max ? l->current_fds : max;
    memcpy(ret, l->fds, n * sizeof(*ret));
    drop_fds(l, n, true);
    l->current_fds -= n;
    return n;
}

/* An error that answers no request: the last words of a guest, or why it could not start. */
static int guest_link_gave_up(const struct guest_link *l, const struct frame *f, struct err *err) {
    guest_link_error(f, err);
    return l->incarnation ? err_wrap(err, "the guest closed the connection") : -1;
}

static int link_frame(struct guest_link *l, struct frame *ret, struct err *err) {
    if (l->port)
        return link_port_next(l->port, ret, err);
    int got = frame_next(&l->in, ret);
    return got < 0 ? err_set(err, ERR_INTERNAL, "protocol error of the guest: malformed frame")
                   : got;
}

int guest_link_received(struct guest_link *l, struct frame *ret, struct err *err) {
    int got;
    while ((got = link_frame(l, ret, err)) == 1) {
        if (claim_fds(l, ret, err) < 0)
            return -1;
        if (ret->head.type == MSG_ERROR && ret->head.tag == 0)
            return guest_link_gave_up(l, ret, err);
        if (ret->head.type != MSG_HELLO)
            return 1;
        if (take_hello(l, ret, err) < 0)
            return -1;
    }
    return got;
}

/* Frees the memory of large frames, once they were handled. */
static void trim(struct guest_link *l) {
    if (l->in.start < l->in.end || l->in.end < TRIM_BYTES)
        return;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)l->room + page - 1) & ~(page - 1);
    uintptr_t to = ((uintptr_t)l->room + sizeof(l->room)) & ~(page - 1);
    madvise((void *)from, to - from, MADV_DONTNEED);
}

/* Keeps the received descriptors. False: there are more than one frame may have. */
static bool keep_fds(struct guest_link *l, struct msghdr *m) {
    bool sound = !(m->msg_flags & MSG_CTRUNC);
    for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(int));
            sound = sound && l->nfds < FRAME_FDS_MAX;
            if (sound)
                l->fds[l->nfds++] = fd;
            else
                close(fd);
        }
    }
    return sound;
}

/* Works like recv(2), and fails with EPROTO if too many descriptors came. */
static ssize_t receive_bytes(struct guest_link *l, int flags) {
    uint8_t *to;
    if (l->port)
        return link_port_receive(l->port, l->sock, flags);
    trim(l);
    size_t room = frame_space(&l->in, &to);
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(FRAME_FDS_MAX * sizeof(int))];
    } control;
    struct iovec v = {to, room};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(l->sock, &m, flags | MSG_CMSG_CLOEXEC);
    if (n < 0 || keep_fds(l, &m))
        return n;
    errno = EPROTO;
    return -1;
}

/* 1: bytes were received. 0: none now. -1: *err. */
static int receive_some(struct guest_link *l, int flags, struct err *err) {
    ssize_t n;
    do
        n = receive_bytes(l, flags);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n < 0 && errno != ECONNRESET)
        return err_sys(err, "cannot receive from the guest");
    if (n <= 0)
        return err_set(err, ERR_GONE, "the guest closed the connection");
    if (!l->port)
        frame_fed(&l->in, (size_t)n);
    return 1;
}

int guest_link_receive(struct guest_link *l, struct err *err) {
    return receive_some(l, MSG_DONTWAIT, err);
}

/* Takes a frame from the buffer, else receives bytes. 1: *ret is a frame. 0: none now. -1: *err. */
static int receive(struct guest_link *l, struct frame *ret, int flags, struct err *err) {
    int got;
    while ((got = guest_link_received(l, ret, err)) == 0) {
        got = receive_some(l, flags, err);
        if (got <= 0)
            return got;
    }
    return got;
}

int guest_link_next(struct guest_link *l, struct frame *ret, struct err *err) {
    return receive(l, ret, MSG_DONTWAIT, err);
}

int guest_link_wait(struct guest_link *l, int timeout_ms, struct frame *ret, struct err *err) {
    int64_t end = timeout_ms < 0 ? INT64_MAX : (int64_t)monotonic_ms() + timeout_ms;
    for (;;) {
        /* Without anything to send and without a timeout, recvmsg() itself may block. */
        bool may_sleep = timeout_ms < 0 && guest_link_backlog(l) == 0;
        int got = receive(l, ret, may_sleep ? 0 : MSG_DONTWAIT, err);
        if (got != 0)
            return got;
        int64_t left = timeout_ms < 0 ? -1 : end - (int64_t)monotonic_ms();
        if (timeout_ms >= 0 && left <= 0)
            return 0;
        struct pollfd p = {.fd = l->sock, .events = guest_link_events(l)};
        if (poll(&p, 1, (int)left) < 0 && errno != EINTR)
            return err_sys(err, "cannot wait for the guest");
        if (p.revents & POLLOUT && guest_link_flush(l, err) < 0)
            return -1;
    }
}

static int guest_link_answer(uint16_t request, const struct frame *f, struct err *err) {
    if (f->head.type != MSG_ERROR && msg_answers(request, f->head.type))
        return 0;
    return guest_link_error(f, err); /* also names an unexpected answer */
}

int guest_link_call(struct guest_link *l, struct frame_head head, const void *msg,
                    struct frame *ret, struct err *err) {
    head.tag = ++l->tag ? l->tag : ++l->tag;
    if (guest_link_send(l, &head, msg, NULL, 0, err) < 0)
        return -1;
    while (guest_link_wait(l, -1, ret, err) == 1) {
        if (ret->head.tag == head.tag)
            return guest_link_answer(head.type, ret, err);
        if (l->on_frame)
            l->on_frame(l->on_frame_arg, ret);
    }
    return -1;
}

/* Commands. */

/* 1: *f ends the command `id`, *ret says how; 0: the frame is about something else. */
static int settles(const struct frame *f, uint32_t id, struct guest_result *ret, struct err *err) {
    if (f->head.id != id)
        return 0;
    switch (f->head.type) {
    case MSG_ERROR:
        return guest_link_error(f, err);
    case MSG_EXEC_FAILED:
        *ret = (struct guest_result){.never_began = true};
        return msg_get_failed(f, &ret->why) < 0 ? -1 : 1;
    case MSG_EXIT:
        *ret = (struct guest_result){0};
        return msg_get_exit(f, &ret->exit) < 0 ? -1 : 1;
    default:
        return 0;
    }
}

int guest_link_run(struct guest_link *l, uint32_t id, const struct msg_exec *exec, const int *fds,
                   uint32_t nfds, struct guest_result *ret, struct err *err) {
    struct frame_head head = {.type = MSG_EXEC, .id = id, .tag = ++l->tag};
    struct msg_exec quiet = *exec;
    quiet.flags |= MSG_EXEC_QUIET;
    if (guest_link_send(l, &head, &quiet, fds, nfds, err) < 0)
        return -1;
    struct frame f;
    while (guest_link_wait(l, -1, &f, err) == 1) {
        int got = settles(&f, id, ret, err);
        if (got < 0)
            return err_wrap(err, "cannot run the command");
        if (got == 1)
            return ret->never_began ? 0 : guest_link_ack(l, id, err);
        if (l->on_frame)
            l->on_frame(l->on_frame_arg, &f);
    }
    return -1;
}

int guest_result_status(const struct guest_result *r) {
    if (r->never_began && r->why.step != MSG_STEP_EXEC)
        return 125;
    if (r->never_began)
        return r->why.number == ENOENT ? 127 : 126;
    if (r->exit.flags & MSG_EXIT_TIMED_OUT)
        return 124;
    return (int)r->exit.status + (r->exit.flags & MSG_EXIT_SIGNALED ? 128 : 0);
}

int guest_link_stdin(struct guest_link *l, uint32_t id, uint64_t offset, const void *bytes,
                     uint32_t n, bool eof, struct err *err) {
    struct frame_head head = {.type = MSG_STDIN, .id = id, .flags = eof ? FRAME_EOF : 0};
    struct msg_data data = {.offset = offset, .data = {bytes, n}};
    return guest_link_send(l, &head, &data, NULL, 0, err);
}

int guest_link_credit(struct guest_link *l, uint32_t id, uint8_t stream, uint64_t consumed,
                      struct err *err) {
    struct frame_head head = {.type = MSG_CREDIT, .id = id};
    struct msg_credit credit = {.stream = stream, .consumed = consumed};
    return guest_link_send(l, &head, &credit, NULL, 0, err);
}

int guest_link_ack(struct guest_link *l, uint32_t id, struct err *err) {
    struct frame_head head = {.type = MSG_EXIT_ACK, .id = id};
    return guest_link_send(l, &head, NULL, NULL, 0, err);
}
