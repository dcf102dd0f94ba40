#include "io/ws_client.h"

#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/defer.h"

struct ws_client {
    struct http_client *http;
    struct ws_decoder decoder;
    struct buf message;
    char *at; /* received bytes that are not decoded yet */
    size_t n;
    bool closing, over;
};

static int random_bytes(void *to, size_t n, struct err *err) {
    return getrandom(to, n, 0) == (ssize_t)n ? 0 : err_sys(err, "cannot read random numbers");
}

/* Opening */

static int check_answer(const struct http_head *h, const char *key, struct err *err) {
    char accept[WS_ACCEPT_SIZE];
    ws_accept(key, strlen(key), accept);
    if (h->status != 101)
        return err_set(err, h->status == 404 ? ERR_NOT_FOUND : ERR_DENIED,
                       "the server refused the WebSocket connection with status %d", h->status);
    if (!h->upgrade || !http_list_has(h, "upgrade", "websocket") ||
        !http_text_is(http_field_only(h, "sec-websocket-accept"), accept) ||
        http_field_find(h, "sec-websocket-extensions"))
        return err_set(err, ERR_INTERNAL,
                       "the server's answer to a WebSocket request is malformed");
    return 0;
}

static int shake_hands(struct http_client *http, const char *target, const struct http_pair *fields,
                       int *ret_status, struct err *err) {
    enum { FIELDS_MAX = 16 };
    uint8_t random[16];
    char key[WS_KEY_SIZE];
    struct http_pair all[FIELDS_MAX] = {{"Connection", "Upgrade"},
                                        {"Upgrade", "websocket"},
                                        {"Sec-WebSocket-Version", "13"},
                                        {"Sec-WebSocket-Key", key}};
    const struct http_head *answer;
    size_t count = 4;
    if (random_bytes(random, sizeof(random), err) < 0)
        return -1;
    ws_key(random, key);
    for (; fields && fields->name; fields++) {
        if (count == FIELDS_MAX - 1)
            return err_set(err, ERR_LIMIT, "too many header fields for a WebSocket request");
        all[count++] = *fields;
    }
    struct http_request request = {.method = "GET", .target = target, .fields = all};
    if (http_client_send(http, &request, err) < 0 || http_client_answer(http, &answer, err) < 0)
        return -1;
    if (answer->status != 101 && ret_status)
        *ret_status = answer->status;
    return check_answer(answer, key, err);
}

struct ws_client *ws_client_open(struct http_client *http, const char *target,
                                 const struct http_pair *fields, size_t message_max,
                                 int *ret_status, struct err *err) {
    if (shake_hands(http, target, fields, ret_status, err) < 0)
        return NULL;
    struct ws_client *ws = xnew(struct ws_client);
    ws->http = http;
    ws->message = BUF(message_max);
    ws_decoder_begin(&ws->decoder, WS_CLIENT, message_max);
    return ws;
}

void ws_client_free(struct ws_client *ws) {
    if (!ws)
        return;
    buf_done(&ws->message);
    free(ws);
}

void ws_client_freep(struct ws_client **ws) {
    ws_client_free(*ws);
}

/* Sending */

int ws_client_send(struct ws_client *ws, enum ws_opcode kind, const void *data, size_t n,
                   struct err *err) {
    uint8_t mask[4], head[WS_HEAD_MAX];
    struct buf frame DEFER(buf_done) = BUF(n + WS_HEAD_MAX);
    if (ws->closing)
        return err_set(err, ERR_GONE, "the WebSocket is closed");
    if (random_bytes(mask, sizeof(mask), err) < 0)
        return -1;
    size_t at = ws_head(head, kind, true, n, mask);
    if (!buf_add(&frame, head, at) || !buf_add(&frame, data, n))
        return err_set(err, ERR_LIMIT, "out of memory for a WebSocket message of %zu bytes", n);
    ws_mask(frame.data + at, n, mask, 0);
    return http_client_write_raw(ws->http, frame.data, frame.len, err);
}

int ws_client_close(struct ws_client *ws, int code, const char *reason, struct err *err) {
    char payload[WS_CONTROL_MAX];
    if (ws->closing)
        return 0;
    int r = ws_client_send(ws, WS_CLOSE, payload, ws_close_payload(payload, code, reason), err);
    ws->closing = true;
    return r;
}

/* Receiving */

/* 1: *e is a complete message for the caller. */
static int take_event(struct ws_client *ws, struct ws_event *e, struct err *err) {
    switch (e->opcode) {
    case WS_PING:
        return ws->closing ? 0 : ws_client_send(ws, WS_PONG, e->data, e->n, err);
    case WS_CLOSE:
        ws->over = true;
        ws_client_close(ws, e->code, NULL, NULL);
        return 1;
    case WS_TEXT:
    case WS_BINARY:
        if (e->first && e->last)
            return 1;
        if (e->first)
            ws->message.len = 0;
        if (!buf_add(&ws->message, e->data, e->n))
            return err_set(err, ERR_LIMIT, "out of memory for a WebSocket message");
        e->data = ws->message.data;
        e->n = ws->message.len;
        return e->last;
    case WS_PONG:
    case WS_CONTINUATION:
        break;
    }
    return 0;
}

/* Decodes received bytes. 1: *ret is a message; 0: no message is complete; -1: broken. */
static int ws_client_decode(struct ws_client *ws, struct ws_event *ret, struct err *err) {
    while (ws->n) {
        size_t used;
        int r = ws_next(&ws->decoder, ws->at, ws->n, &used, ret);
        if (r < 0) {
            ws_client_close(ws, ws->decoder.error, "", NULL);
            return err_set(err, ERR_INTERNAL,
                           "the server broke the WebSocket protocol (close code %d)",
                           ws->decoder.error);
        }
        ws->at += used;
        ws->n -= used;
        if (r && (r = take_event(ws, ret, err)))
            return r;
    }
    return 0;
}

int ws_client_next(struct ws_client *ws, int timeout_ms, struct ws_event *ret, struct err *err) {
    for (;;) {
        struct err why = {0};
        if (ws->over)
            return err_set(err, ERR_GONE, "the WebSocket is closed");
        int r = ws_client_decode(ws, ret, err);
        if (r)
            return r;
        r = http_client_read_raw(ws->http, timeout_ms, &ws->at, &ws->n, &why);
        if (r == 0)
            return err_set(err, ERR_GONE, "the server closed the connection");
        if (r < 0 && why.code == ERR_TIMEOUT)
            return 0;
        if (r < 0) {
            if (err)
                *err = why;
            return -1;
        }
    }
}
