#include "io/ws_server.h"

#include <string.h>

#include "base/alloc.h"

enum { ABNORMAL = 1006, CLOSE_MS = 2000 };

struct ws {
    struct http_exchange *x;
    const struct ws_handler *handler;
    void *user;
    struct ws_decoder decoder;
    struct buf message; /* fragments received so far */
    struct loop_timer *patience;
    bool closing; /* we sent a close frame */
    int code;     /* close code for on_close */
};

void *ws_user(const struct ws *ws) {
    return ws->user;
}

/* End of a WebSocket */

static void ws_end(struct ws *ws, void (*end)(struct http_exchange *x)) {
    struct http_exchange *x = ws->x;
    ws->closing = true;
    ws->handler->on_close(ws, ws->code);
    x->on_gone = x->on_drain = NULL;
    end(x);
    loop_timer_free(ws->patience);
    buf_done(&ws->message);
    free(ws);
}

static void on_gone(struct http_exchange *x) {
    ws_end(x->user, http_drop);
}

static void out_of_patience(void *arg) {
    ws_end(arg, http_drop);
}

static bool send_frame(struct ws *ws, enum ws_opcode opcode, const void *data, size_t n) {
    uint8_t head[WS_HEAD_MAX];
    http_write(ws->x, head, ws_head(head, opcode, true, n, NULL));
    return http_write(ws->x, data, n);
}

static void say_goodbye(struct ws *ws, int code, const char *reason) {
    char payload[WS_CONTROL_MAX];
    if (ws->closing)
        return;
    ws->closing = true;
    send_frame(ws, WS_CLOSE, payload, ws_close_payload(payload, code, reason));
}

void ws_close(struct ws *ws, int code, const char *reason) {
    if (ws->closing)
        return;
    ws->code = code;
    say_goodbye(ws, code, reason);
    http_resume(ws->x);
    loop_timer_start(ws->patience, CLOSE_MS, 0);
}

/* Messages */

static void message_piece(struct ws *ws, const struct ws_event *e) {
    bool alone = e->first && e->last;
    if (ws->closing)
        return;
    if (!alone && !buf_add(&ws->message, e->data, e->n)) {
        ws_close(ws, WS_TOO_BIG, "out of memory for the WebSocket message");
        return;
    }
    if (!e->last)
        return;
    struct buf whole = ws->message;
    ws->message = BUF(whole.max);
    ws->handler->on_message(ws, e->opcode, alone ? e->data : whole.data, alone ? e->n : whole.len);
    buf_done(&whole);
}

/* False: the peer sent a close frame. */
static bool on_event(struct ws *ws, const struct ws_event *e) {
    switch (e->opcode) {
    case WS_TEXT:
    case WS_BINARY:
        message_piece(ws, e);
        return true;
    case WS_PING:
        if (!ws->closing)
            send_frame(ws, WS_PONG, e->data, e->n);
        return true;
    case WS_CLOSE:
        if (!ws->closing)
            ws->code = e->code;
        say_goodbye(ws, e->code, NULL);
        return false;
    case WS_PONG:
    case WS_CONTINUATION:
        break;
    }
    return true;
}

static void on_bytes(struct http_exchange *x, const char *bytes, size_t n) {
    struct ws *ws = x->user;
    /* The server does not use this buffer after we return, so that it can be unmasked in place. */
    char *at = (char *)bytes;
    bool goes_on = n > 0;
    while (goes_on) {
        struct ws_event e;
        size_t used;
        int r = ws_next(&ws->decoder, at, n, &used, &e);
        if (r < 0) {
            ws->code = ws->closing ? ws->code : ws->decoder.error;
            say_goodbye(ws, ws->decoder.error, "");
        }
        goes_on = r >= 0 && (r == 0 || on_event(ws, &e));
        if (r == 0)
            return;
        at += used;
        n -= used;
    }
    ws_end(ws, http_end); /* queued bytes are sent before the connection closes */
}

static void on_drain(struct http_exchange *x) {
    struct ws *ws = x->user;
    if (!ws->closing && ws->handler->on_drain)
        ws->handler->on_drain(ws);
}

bool ws_send(struct ws *ws, enum ws_opcode kind, const void *data, size_t n) {
    return !ws->closing && send_frame(ws, kind, data, n);
}

bool ws_is_full(const struct ws *ws) {
    return http_is_full(ws->x);
}

size_t ws_pending(const struct ws *ws) {
    return http_pending(ws->x);
}

void ws_pause(struct ws *ws) {
    if (!ws->closing)
        http_pause(ws->x);
}

void ws_resume(struct ws *ws) {
    http_resume(ws->x);
}

/* The handshake */

static bool ws_server_refuse(struct http_exchange *x, int status, const char *why) {
    char body[256];
    int n = snprintf(body, sizeof(body),
                     "{\"error\":{\"code\":\"invalid\",\"message\":\"%s\",\"cause\":\"\","
                     "\"remedy\":\"open the path as a WebSocket, version 13\"}}\n",
                     why);
    http_reply(x, status,
               HTTP_FIELDS({"Content-Type", "application/json"}, {"Sec-WebSocket-Version", "13"},
                           {status == 426 ? "Upgrade" : NULL, "websocket"}),
               body, (size_t)n);
    return false;
}

static bool proper(struct http_exchange *x) {
    const struct http_head *h = x->head;
    struct http_text key = http_field_only(h, "sec-websocket-key");
    struct http_text version = http_field_only(h, "sec-websocket-version");
    if (!h->upgrade || !http_list_has(h, "upgrade", "websocket"))
        return ws_server_refuse(x, 426, "this path accepts only WebSocket requests");
    if (!http_text_is(h->method, "GET") || h->framing != HTTP_NO_BODY)
        return ws_server_refuse(x, 400, "a WebSocket request must be a GET without a body");
    if (!http_text_is(version, "13"))
        return ws_server_refuse(x, 426, "only WebSocket version 13 is supported");
    if (!key.s || !ws_key_valid(key.s, key.n))
        return ws_server_refuse(x, 400, "Sec-WebSocket-Key is malformed");
    return true;
}

struct ws *ws_upgrade(struct http_exchange *x, const struct ws_handler *handler, void *user) {
    struct http_text key = http_field_only(x->head, "sec-websocket-key");
    char accept[WS_ACCEPT_SIZE];
    if (!proper(x))
        return NULL;
    struct ws *ws = xnew(struct ws);
    *ws = (struct ws){.x = x, .handler = handler, .user = user, .code = ABNORMAL};
    ws->message = BUF(handler->message_max);
    ws->patience = loop_timer_new(http_loop(x), out_of_patience, ws);
    ws_decoder_begin(&ws->decoder, WS_SERVER, handler->message_max);
    ws_accept(key.s, key.n, accept);
    bool offered =
        handler->protocol && http_list_has(x->head, "sec-websocket-protocol", handler->protocol);
    x->user = ws;
    x->on_gone = on_gone;
    x->on_drain = on_drain;
    http_upgrade(x, 101,
                 HTTP_FIELDS({"Upgrade", "websocket"}, {"Connection", "Upgrade"},
                             {"Sec-WebSocket-Accept", accept},
                             {offered ? "Sec-WebSocket-Protocol" : NULL, handler->protocol}),
                 on_bytes);
    return ws;
}
