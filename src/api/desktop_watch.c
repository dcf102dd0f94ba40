/*
 * The desktop of a machine over a WebSocket, as VNC clients in browsers use it: binary messages are
 * bytes of RFB 3.8. What ends it is the reason of the close frame.
 */
#include <stdlib.h>

#include "api/route.h"
#include "base/alloc.h"
#include "service/desktop/watch.h"

enum { WATCH_MESSAGE_MAX = 64 << 10 };

struct viewing {
    struct service *service;
    struct caller who;
    struct ws *ws;
    struct desktop_watch *watch; /* NULL once it has ended */
};

static void viewing_show(struct viewing *v) {
    struct buf *shown = desktop_watch_shown(v->watch);
    if (shown->len && !ws_is_full(v->ws)) {
        ws_send(v->ws, WS_BINARY, shown->data, shown->len);
        buf_drop(shown, shown->len);
    }
    desktop_watch_sent(v->watch);
}

/* ---- events of the viewer ---- */

static void viewing_message(struct ws *ws, enum ws_opcode kind, const char *data, size_t n) {
    struct viewing *v = ws_user(ws);
    struct err err;
    if (!v->watch)
        return;
    if (!service_caller_stands(v->service, &v->who)) {
        ws_close(ws, WS_POLICY, "the token was revoked");
    } else if (kind != WS_BINARY) {
        ws_close(ws, WS_POLICY, "unexpected message");
    } else if (desktop_watch_take(v->watch, data, n, &err) < 0) {
        ws_close(ws, WS_POLICY, err.text);
    } else {
        viewing_show(v);
        if (desktop_watch_is_full(v->watch))
            ws_pause(ws);
    }
}

static void viewing_drained(struct ws *ws) {
    struct viewing *v = ws_user(ws);
    if (v->watch)
        viewing_show(v);
}

static void viewing_closed(struct ws *ws, int code) {
    struct viewing *v = ws_user(ws);
    (void)code;
    if (v->watch)
        desktop_watch_cancel(v->watch);
    free(v);
}

static const struct ws_handler viewing_handler = {.on_message = viewing_message,
                                                  .on_drain = viewing_drained,
                                                  .on_close = viewing_closed,
                                                  .message_max = WATCH_MESSAGE_MAX};

/* ---- events of the desktop ---- */

static void viewing_shown(void *arg) {
    viewing_show(arg);
}

static void viewing_room(void *arg) {
    struct viewing *v = arg;
    if (!desktop_watch_is_full(v->watch))
        ws_resume(v->ws);
}

static void viewing_ended(void *arg, const struct err *err) {
    struct viewing *v = arg;
    v->watch = NULL;
    ws_close(v->ws, WS_INTERNAL, err->text);
}

void api_desktop_watch(struct call *c) {
    struct err err;
    if (!c->http->head->upgrade) {
        call_needs_upgrade(c);
        return;
    }
    struct viewing *v = xnew(struct viewing);
    const struct desktop_watch_events events = {
        .arg = v, .shown = viewing_shown, .room = viewing_room, .ended = viewing_ended};
    *v = (struct viewing){.service = c->service, .who = c->who};
    v->watch = service_desktop_watch(c->service, &c->who, c->params[0], &events, &err);
    if (!v->watch) {
        free(v);
        call_error(c, &err);
        return;
    }
    c->http->write_ms = 0;
    v->ws = call_upgrade(c, &viewing_handler, v);
    if (!v->ws) {
        desktop_watch_cancel(v->watch);
        free(v);
    }
}
