#include "service/exec/asks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/capability.h"
#include "base/cell_command.h"
#include "base/defer.h"
#include "gate/channel.h"
#include "gate/gate.h"
#include "service/exec/ask_http.h"
#include "service/exec/inner.h"
#include "service/state.h"

enum {
    ASK_MS = 600000,
    ASK_WHY_MAX = 600,
    ASKS_MAX = 256, /* sockets of one machine: as many as commands that can run in it */
};

/* The socket of one command, and its request in progress. */
struct asks {
    struct live *live;
    struct asks *next, **at;
    uint32_t only;         /* capabilities of the command, of those of its machine */
    struct channel worker; /* the socket of the command */
    struct channel gate;   /* the connection of the present request; fd -1: none */
    struct buf in, raw;    /* frame of the worker; answer that came through the gate */
    uint32_t kind;         /* of the present request; 0: none */
    bool to_head;          /* its method is HEAD */
    struct loop_timer *timer;
    struct loop_call later; /* frees it */
    bool ended;
};

static const struct {
    uint32_t kind, capability;
} ask_kinds[] = {
    {CELL_ASK_HTTP, CAPABILITY_HTTP},
    {CELL_ASK_MODEL, CAPABILITY_MODEL},
};

static uint32_t asks_had(const struct live *l) {
    uint32_t bits = 0;
    struct err err;
    return capabilities_parse(l->row.allowed, &bits, &err) < 0 ? 0 : bits;
}

bool asks_are_allowed(const struct live *l, uint32_t only) {
    return asks_had(l) & only & (CAPABILITY_HTTP | CAPABILITY_MODEL);
}

/* ---- end ---- */

static void asks_free(struct asks *a) {
    struct loop *loop = a->live->service->loop;
    *a->at = a->next;
    if (a->next)
        a->next->at = a->at;
    loop_call_cancel(loop, &a->later);
    loop_timer_free(a->timer);
    channel_close(&a->worker);
    channel_close(&a->gate);
    buf_done(&a->in);
    buf_done(&a->raw);
    free(a);
}

static void asks_free_later(void *arg) {
    asks_free(arg);
}

void asks_free_all(struct asks *first) {
    for (struct asks *next; first; first = next) {
        next = first->next;
        asks_free(first);
    }
}

/* Called by callbacks of the channels, which must not be closed meanwhile. */
static void asks_end(struct asks *a) {
    if (a->ended)
        return;
    a->ended = true;
    channel_listen(&a->worker, false);
    loop_defer(a->live->service->loop, &a->later);
}

/* ---- answers ---- */

static void ask_reply(struct asks *a, int32_t code, const void *bytes, size_t len) {
    const struct cell_answer_head head = {.code = code, .len = (uint32_t)len};
    a->kind = 0;
    a->in.len = a->raw.len = 0;
    loop_timer_stop(a->timer);
    channel_close(&a->gate);
    if (!channel_write(&a->worker, &head, sizeof(head)) ||
        (len && !channel_write(&a->worker, bytes, len)))
        asks_end(a);
    else
        channel_listen(&a->worker, true);
}

static void ask_fail(struct asks *a, const struct err *err) {
    static const struct {
        enum err_code from;
        int32_t to;
    } codes[] = {
        {ERR_INVALID, CELL_CODE_INVALID},
        {ERR_DENIED, CELL_CODE_DENIED},
        {ERR_LIMIT, CELL_CODE_LIMIT},
        {ERR_TIMEOUT, CELL_CODE_LIMIT},
    };
    int32_t code = CELL_CODE_FAILED;
    for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++)
        if (codes[i].from == err->code)
            code = codes[i].to;
    ask_reply(a, code, err->text, strlen(err->text));
}

/* A model answers with its JSON; any other status is a failure with the reason. */
static void ask_reply_model(struct asks *a, int status, const struct buf *body) {
    struct buf why DEFER(buf_done) = BUF(ASK_WHY_MAX + 64);
    if (status >= 200 && status < 300) {
        ask_reply(a, (int32_t)body->len, body->data, body->len);
        return;
    }
    int n = (int)(body->len < ASK_WHY_MAX ? body->len : ASK_WHY_MAX);
    (void)!buf_addf(&why, "status %d: %.*s", status, n, body->len ? body->data : "");
    ask_reply(a, CELL_CODE_FAILED, why.data, why.len);
}

static void ask_answered(struct asks *a) {
    struct buf body DEFER(buf_done) = BUF(ASK_BYTES_MAX), out DEFER(buf_done) = BUF(ASK_BYTES_MAX);
    struct buf headers DEFER(buf_done) = BUF(256 << 10);
    struct err err;
    uint32_t kind = a->kind;
    int status = ask_answer_read(a->raw.data ? a->raw.data : "", a->raw.len, a->to_head, &body,
                                 &headers, &err);
    if (status < 0) {
        ask_fail(a, &err);
    } else if (kind == CELL_ASK_MODEL) {
        ask_reply_model(a, status, &body);
    } else if (ask_answer_write(status, &headers, &body, &out)) {
        ask_reply(a, (int32_t)out.len, out.data, out.len);
    } else {
        err_set(&err, ERR_LIMIT, "the answer is larger than 1 MiB");
        ask_fail(a, &err);
    }
}

static void ask_on_gate(void *arg) {
    struct asks *a = arg;
    char bytes[16384];
    ssize_t n = -EAGAIN;
    struct err err;
    if (a->ended || !a->kind)
        return;
    while ((n = channel_read(&a->gate, bytes, sizeof(bytes))) > 0)
        if (!buf_add(&a->raw, bytes, (size_t)n)) {
            err_set(&err, ERR_LIMIT, "the answer is larger than 1 MiB");
            ask_fail(a, &err);
            return;
        }
    if (n == -EAGAIN)
        return;
    ask_answered(a);
}

static void ask_late(void *arg) {
    struct asks *a = arg;
    struct err err;
    if (a->ended || !a->kind)
        return;
    err_set(&err, ERR_TIMEOUT, "the request took more than %d s", ASK_MS / 1000);
    ask_fail(a, &err);
}

/* ---- requests ---- */

/* Sends the request into the gate, as a connection of the machine. */
static int ask_send(struct asks *a, const struct buf *request, bool is_tls, struct err *err) {
    channel_close(&a->gate);
    int fd = gate_enter(a->live->gate, is_tls, err);
    if (fd < 0 || channel_open(&a->gate, a->live->service->loop, fd, ask_on_gate, a, err) < 0)
        return -1;
    if (!channel_write(&a->gate, request->data, request->len))
        return err_set(err, ERR_UNKNOWN, "the connection to the gate broke");
    channel_listen(&a->gate, true);
    loop_timer_start(a->timer, ASK_MS, 0);
    return 0;
}

static int ask_may(const struct asks *a, uint32_t kind, struct err *err) {
    uint32_t had = asks_had(a->live) & a->only;
    for (size_t i = 0; i < sizeof(ask_kinds) / sizeof(*ask_kinds); i++)
        if (ask_kinds[i].kind == kind && had & ask_kinds[i].capability)
            return 0;
    return err_set(err, ERR_DENIED, "the machine does not have this capability any more");
}

static void ask_begin(struct asks *a, uint32_t kind, const char *json, size_t len) {
    struct buf request DEFER(buf_done) = BUF(ASK_RAW_MAX);
    bool is_tls = false;
    struct err err;
    a->kind = kind;
    channel_listen(&a->worker, false); /* one request at a time */
    int r = ask_may(a, kind, &err);
    if (r == 0)
        r = kind == CELL_ASK_MODEL ? ask_model_write(json, len, &request, &err)
                                   : ask_http_write(json, len, &request, &is_tls, &err);
    if (r == 0) {
        a->to_head = strncmp(request.data, "HEAD ", 5) == 0;
        r = ask_send(a, &request, is_tls, &err);
    }
    if (r < 0)
        ask_fail(a, &err);
}

/* Reads one frame. A worker that breaks the protocol loses its socket. */
static void ask_on_worker(void *arg) {
    struct asks *a = arg;
    struct cell_ask_head head;
    char bytes[16384];
    if (a->ended)
        return;
    for (;;) {
        size_t want = sizeof(head);
        if (a->in.len >= sizeof(head)) {
            memcpy(&head, a->in.data, sizeof(head));
            if (head.len > ASK_BYTES_MAX) {
                asks_end(a);
                return;
            }
            want += head.len;
            if (a->in.len == want) {
                ask_begin(a, head.kind, a->in.data + sizeof(head), head.len);
                return;
            }
        }
        size_t left = want - a->in.len;
        ssize_t n = channel_read(&a->worker, bytes, left < sizeof(bytes) ? left : sizeof(bytes));
        if (n == -EAGAIN)
            return;
        if (n <= 0 || !buf_add(&a->in, bytes, (size_t)n)) {
            asks_end(a);
            return;
        }
    }
}

static size_t asks_count(const struct asks *first) {
    size_t n = 0;
    for (; first; first = first->next)
        n++;
    return n;
}

int asks_open(struct live *l, uint32_t only, struct err *err) {
    int ends[2];
    /* A guest that was taken over can keep the sockets of commands that have ended. */
    if (asks_count(l->execs->asks) >= ASKS_MAX) {
        err_set(err, ERR_LIMIT, "machine '%s' has %d connections for http and model open",
                l->row.id, ASKS_MAX);
        return err_remedy(err, "wait until some of its commands have ended, or stop the machine");
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return err_sys(err, "cannot create the socket of a command");
    int theirs DEFER_CLOSE = ends[1]; /* the worker waits in read and write */
    (void)!fcntl(ends[0], F_SETFL, O_NONBLOCK);
    struct asks *a = xnew(struct asks);
    *a = (struct asks){.live = l,
                       .only = only,
                       .in = BUF(ASK_BYTES_MAX + sizeof(struct cell_ask_head)),
                       .raw = BUF(ASK_RAW_MAX),
                       .next = l->execs->asks,
                       .at = &l->execs->asks};
    a->worker.fd = a->gate.fd = -1;
    a->later = (struct loop_call){.fn = asks_free_later, .arg = a};
    a->timer = loop_timer_new(l->service->loop, ask_late, a);
    if (a->next)
        a->next->at = &a->next;
    l->execs->asks = a;
    if (channel_open(&a->worker, l->service->loop, ends[0], ask_on_worker, a, err) < 0) {
        asks_free(a);
        return -1;
    }
    channel_listen(&a->worker, true);
    return TAKE_FD(theirs);
}
