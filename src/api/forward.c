/*
 * Connections to a port of a machine, or to its serial console, over a WebSocket. Binary messages
 * are bytes. The text message
 * {"type":"end"} ends the bytes of its sender, who still receives those of the other side. The
 * answer to it is {"type":"taken"}, once the machine has taken all bytes: a client that closes
 * earlier resets its connection to the port, as one that breaks off does.
 *
 * A side that reads slowly slows the other one down: at most HELD_MAX bytes wait here.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/bodies.h"
#include "api/route.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "base/parse.h"
#include "service/net/forward.h"

enum { PIECE = 32 << 10, TURNS = 8, MESSAGE_MAX = 64 << 10, HELD_MAX = 512 << 10 };

struct tunnel {
    struct service *service;
    struct caller who;
    struct forward *forward;
    struct ws *ws;
    struct loop_watch *watch;
    int fd;          /* the socket of the machine's port; -1 once it broke */
    struct buf held; /* bytes of the client that the machine did not take yet */
    bool client_ended, taken, machine_ended;
};

static void tunnel_say(struct tunnel *t, const char *what) {
    char text[32];
    int n = snprintf(text, sizeof(text), "{\"type\":\"%s\"}", what);
    ws_send(t->ws, WS_TEXT, text, (size_t)n);
}

/* Breaks off on both sides: neither takes a part of the bytes for all of them. */
static void tunnel_break(struct tunnel *t, int code, const char *why) {
    loop_watch_free(TAKE(t->watch));
    setsockopt(t->fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    close_fd(&t->fd);
    ws_close(t->ws, code, why);
}

/* Sends held bytes. False: the connection to the machine broke. */
static bool tunnel_send(struct tunnel *t) {
    while (t->held.len) {
        ssize_t n = send(t->fd, t->held.data, t->held.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EINTR)
            return errno == EAGAIN;
        if (n > 0)
            buf_drop(&t->held, (size_t)n);
    }
    if (t->client_ended && !t->taken) {
        t->taken = true;
        tunnel_say(t, "taken");
        return shutdown(t->fd, SHUT_WR) == 0;
    }
    return true;
}

/* Passes on bytes of the machine. False: its connection broke. */
static bool tunnel_receive(struct tunnel *t) {
    char bytes[PIECE];
    for (int i = 0; i < TURNS && !t->machine_ended && !ws_is_full(t->ws); i++) {
        ssize_t n = recv(t->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        t->machine_ended = n == 0;
        if (t->machine_ended)
            tunnel_say(t, "end");
        else
            ws_send(t->ws, WS_BINARY, bytes, (size_t)n);
    }
    return true;
}

static void tunnel_go_on(struct tunnel *t) {
    if (t->fd < 0)
        return;
    if (!service_caller_stands(t->service, &t->who)) {
        tunnel_break(t, WS_POLICY, "the token was revoked");
        return;
    }
    if (!tunnel_send(t) || !tunnel_receive(t)) {
        tunnel_break(t, WS_INTERNAL, "the connection to the machine broke");
        return;
    }
    if (t->held.len)
        ws_pause(t->ws);
    else
        ws_resume(t->ws);
    bool reads = !t->machine_ended && !ws_is_full(t->ws);
    loop_watch_set(t->watch, (reads ? LOOP_READ : 0) | (t->held.len ? LOOP_WRITE : 0));
}

static void tunnel_event(void *arg, unsigned events) {
    (void)events;
    tunnel_go_on(arg);
}

static bool is_end(const char *data, size_t n) {
    json_t *root = json_loadb(data, n, 0, NULL);
    const char *type = json_string_value(json_object_get(root, "type"));
    bool ends = type && strcmp(type, "end") == 0;
    json_decref(root);
    return ends;
}

static void tunnel_message(struct ws *ws, enum ws_opcode kind, const char *data, size_t n) {
    struct tunnel *t = ws_user(ws);
    if (t->fd < 0)
        return;
    bool ends = kind == WS_TEXT;
    if (t->client_ended || (ends && !is_end(data, n)) || (!ends && !buf_add(&t->held, data, n))) {
        tunnel_break(t, WS_POLICY, "unexpected message");
        return;
    }
    t->client_ended = ends;
    tunnel_go_on(t);
}

static void tunnel_drained(struct ws *ws) {
    tunnel_go_on(ws_user(ws));
}

static void tunnel_closed(struct ws *ws, int code) {
    struct tunnel *t = ws_user(ws);
    (void)code;
    loop_watch_free(t->watch);
    if (t->fd >= 0 && !(t->taken && t->machine_ended))
        setsockopt(t->fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1},
                   sizeof(struct linger));
    close_fd(&t->fd);
    buf_done(&t->held);
    service_forward_over(t->forward);
    free(t);
}

static const struct ws_handler tunnel_handler = {.on_message = tunnel_message,
                                                 .on_drain = tunnel_drained,
                                                 .on_close = tunnel_closed,
                                                 .message_max = MESSAGE_MAX};

static void forward_opened(void *arg, struct forward *f, int fd, const struct err *err) {
    struct call *c = arg;
    int sock DEFER_CLOSE = fd;
    if (err) {
        call_error(c, err);
        return;
    }
    if (call_is_gone(c)) {
        service_forward_over(f);
        call_abandon(c);
        return;
    }
    struct loop *loop = http_loop(c->http);
    struct tunnel *t = xnew(struct tunnel);
    *t = (struct tunnel){
        .service = c->service, .who = c->who, .forward = f, .fd = -1, .held = BUF(HELD_MAX)};
    c->http->write_ms = 0;
    t->ws = call_upgrade(c, &tunnel_handler, t);
    if (!t->ws) {
        service_forward_over(f);
        free(t);
        return;
    }
    struct err failed;
    t->fd = TAKE_FD(sock);
    if (loop_watch_new(loop, t->fd, LOOP_READ, tunnel_event, t, &t->watch, &failed) < 0)
        tunnel_break(t, WS_INTERNAL, failed.text);
}

void api_serial(struct call *c) {
    struct err err;
    uint64_t offset = 0;
    if (!c->http->head->upgrade)
        call_needs_upgrade(c);
    else if (call_number(c, "offset", 0, INT64_MAX, &offset, &err) < 0)
        call_error(c, &err);
    else
        service_serial(c->service, &c->who, c->params[0], offset, forward_opened, c);
}

void api_forward(struct call *c) {
    struct err err;
    uint64_t port;
    if (!c->http->head->upgrade) {
        call_needs_upgrade(c);
        return;
    }
    if (parse_u64(c->params[1], 1, 65535, &port, &err) < 0) {
        err_wrap(&err, "port");
        call_error(c, &err);
        return;
    }
    service_forward(c->service, &c->who, c->params[0], (uint16_t)port, forward_opened, c);
}
