/*
 * WebSockets on the server: an exchange becomes a conversation of messages.
 *
 * Pings are answered, fragments put together, closing handshakes made here. on_close comes exactly
 * once, whoever closed and however; when it returns the struct is gone. None of the callbacks is
 * called from inside a function below.
 */
#pragma once

#include "io/http_server.h"
#include "io/websocket.h"

struct ws;

struct ws_handler {
    void (*on_message)(struct ws *ws, enum ws_opcode kind, const char *data, size_t n);
    void (*on_drain)(struct ws *ws);           /* after ws_send() said false; may be NULL */
    void (*on_close)(struct ws *ws, int code); /* 1006: without a word */
    size_t message_max;
    const char
        *protocol; /* said back in Sec-WebSocket-Protocol when the client offers it, or NULL */
};

/*
 * Answers the exchange, which is the server's from here. NULL: it was not a proper request for a
 * WebSocket, and was told so. Check Origin before; nothing here does. The handler's struct must
 * live on.
 */
struct ws *ws_upgrade(struct http_exchange *x, const struct ws_handler *handler, void *user);
void *ws_user(const struct ws *ws);

/* WS_TEXT (must be UTF-8), WS_BINARY or WS_PING. False: full, or closing; wait for on_drain. */
bool ws_send(struct ws *ws, enum ws_opcode kind, const void *data, size_t n);
bool ws_is_full(const struct ws *ws); /* on_drain is still to come */
size_t ws_pending(const struct ws *ws);

/* No more messages; on_close follows. A peer that does not answer is cut off after two seconds. */
void ws_close(struct ws *ws, int code, const char *reason);

/* Stops reading; messages that were read already still come. */
void ws_pause(struct ws *ws);
void ws_resume(struct ws *ws);
