#include "guest/calls.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "guest/conn.h"
#include "guest/scratch.h"
#include "guest/sys.h"

enum { CALLS_MAX = 8, CALLS_BACKLOG = 8 };

/* One caller. */
struct call {
    struct source src; /* fd < 0: the slot is free */
    uint32_t id;
    uint32_t n;              /* bytes of words; 0: they have not come yet */
    const struct conn *told; /* connection that the words were sent to; NULL: none yet */
};

static struct call calls[CALLS_MAX];
static char call_words[CALLS_MAX][MSG_CALL_MAX + 1] SPARSE;
static struct source calls_listener;
static uint32_t calls_last_id;

static char *words_of(const struct call *call) {
    return call_words[call - calls];
}

static void call_close(struct guest *g, struct call *call) {
    source_close(g, &call->src);
    *call = (struct call){.src = {.fd = -1}};
}

/* Sends the answer as one packet, status first. A caller that does not read it loses it. */
static void call_end(struct guest *g, struct call *call, uint8_t status, const void *text,
                     size_t n) {
    struct iovec parts[] = {{&status, 1}, {(void *)text, n}};
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
    (void)!sendmsg(call->src.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    call_close(g, call);
}

/* n = 0: the caller has left. */
static void call_send(struct conn *c, const struct call *call, uint32_t n) {
    struct frame_head head = {.type = MSG_CALL, .id = call->id};
    guest_conn_send(c, &head, &(struct msg_call){n == 0, {(const uint8_t *)words_of(call), n}});
}

static struct conn *find_host(struct guest *g) {
    for (int i = 0; i < CONN_MAX; i++) {
        struct conn *c = &g->conns[i];
        if (c->src.fd >= 0 && c->greeted && c->takes_calls && conn_has_room(c))
            return c;
    }
    return NULL;
}

void calls_offer(struct guest *g) {
    struct conn *host = find_host(g);
    for (struct call *call = calls; call < calls + CALLS_MAX && host; call++) {
        if (call->src.fd < 0 || !call->n || call->told)
            continue;
        call_send(host, call, call->n);
        call->told = host;
        if (!conn_has_room(host))
            host = find_host(g);
    }
}

void calls_forget(const struct conn *c) {
    for (struct call *call = calls; call < calls + CALLS_MAX; call++)
        if (call->told == c)
            call->told = NULL;
}

/* Tells the host that the caller has left. Without room the host learns it by its answer. */
static void call_left(struct guest *g, struct call *call) {
    struct conn *host = (struct conn *)call->told;
    if (host && conn_has_room(host))
        call_send(host, call, 0);
    call_close(g, call);
}

static void on_words(struct guest *g, struct source *src, uint32_t events) {
    static const char too_long[] = "carrel: the arguments are too long\n";
    struct call *call = src->owner;
    (void)events;
    ssize_t n = recv(src->fd, words_of(call), MSG_CALL_MAX + 1, MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || call->n) { /* a second packet breaks the protocol */
        call_left(g, call);
        return;
    }
    if (n > MSG_CALL_MAX) {
        call_end(g, call, 2, too_long, sizeof(too_long) - 1);
        return;
    }
    call->n = (uint32_t)n;
    call->id = ++calls_last_id ? calls_last_id : ++calls_last_id;
    calls_offer(g);
}

static void on_caller(struct guest *g, struct source *src, uint32_t events) {
    (void)events;
    int fd = accept4(src->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct call *call = calls;
    while (call < calls + CALLS_MAX && call->src.fd >= 0)
        call++;
    if (fd < 0)
        return;
    if (call == calls + CALLS_MAX) {
        const uint8_t again = MSG_CALL_AGAIN;
        (void)!send(fd, &again, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        close(fd);
        return;
    }
    call->src = (struct source){.fd = fd, .ready = on_words, .owner = call};
    if (source_add(g, &call->src, EPOLLIN) < 0)
        call_close(g, call);
}

void calls_begin(struct guest *g) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    memcpy(name.sun_path + 1, CALLS_NAME, sizeof(CALLS_NAME) - 1);
    socklen_t size = offsetof(struct sockaddr_un, sun_path) + sizeof(CALLS_NAME);
    for (struct call *call = calls; call < calls + CALLS_MAX; call++)
        call->src.fd = -1;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    calls_listener = (struct source){fd, on_caller, NULL};
    if (fd >= 0 && (bind(fd, (struct sockaddr *)&name, size) < 0 || listen(fd, CALLS_BACKLOG) < 0 ||
                    source_add(g, &calls_listener, EPOLLIN) < 0))
        close_fd(&calls_listener.fd);
}

enum serve_result calls_answer(struct guest *g, struct conn *c, const struct frame *f) {
    struct msg_call_answer m;
    SERVE_GET(answer, f, &m);
    if (m.text.n > MSG_CALL_ANSWER_MAX)
        return SERVE_BROKEN;
    for (struct call *call = calls; call < calls + CALLS_MAX; call++)
        if (call->src.fd >= 0 && call->told == c && call->id == f->head.id)
            call_end(g, call, m.status, m.text.p, m.text.n);
    return SERVE_DONE;
}
