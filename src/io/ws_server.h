/*
 * WebSockets on the server: turns an HTTP exchange into a stream of messages.
 *
 * Pings are answered, fragments joined and closing handshakes made here. on_close is called exactly
 * once, whichever side closed; when it returns, the struct is freed. None of the callbacks is
 * called from inside a function below.
 */
#pragma once

#include "io/http_server.h"
#include "io/websocket.h"

struct ws;

struct ws_handler {
    void (*on_message)(struct ws *ws, enum ws_opcode kind, const char *data, size_t n);
    void (*on_drain)(struct ws *ws);           /* ws_send() has room again; may be NULL */
    void (*on_close)(struct ws *ws, int code); /* 1006: no close frame came */
    size_t message_max;
    const char *protocol; /* confirmed in Sec-WebSocket-Protocol if the client offers it; or NULL */
};

/*
 * Answers the exchange and takes it over. NULL: it was not a valid WebSocket request, and was
 * refused. Check Origin before: this function does not. *handler must stay valid until on_close.
 */
struct ws *ws_upgrade(struct http_exchange *x, const struct ws_handler *handler, void *user);
void *ws_user(const struct ws *ws);

/*
 * Sends WS_TEXT (must be UTF-8), WS_BINARY or WS_PING. False: full, or closing; wait for on_drain.
 */
bool ws_send(struct ws *ws, enum ws_opcode kind, const void *data, size_t n);
bool ws_is_full(const struct ws *ws); /* true: on_drain will be called */
size_t ws_pending(const struct ws *ws);

/*
 * Sends a close frame; on_close follows. A peer that does not answer is cut off after two seconds.
 */
void ws_close(struct ws *ws, int code, const char *reason);

/* Stops reading; messages that were already read are still delivered. */
void ws_pause(struct ws *ws);
void ws_resume(struct ws *ws);
