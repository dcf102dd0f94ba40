/*
 * MCP over HTTP: Streamable HTTP on one path, and lines over an upgraded connection (what
 * `carrel mcp` bridges to its standard streams).
 *
 * A request is answered with one JSON text if that is all there is to say and it comes soon, else
 * with a stream of events, which starts with an empty one so that a client that loses it can come
 * back (GET with Last-Event-ID) and miss nothing. What was sent is kept for that, within caps, for
 * some minutes. A client that goes away cancels nothing: only a notification does, or the end of
 * its session (DELETE, or closing the upgraded connection).
 *
 * Whose request it is was found out before: sessions belong to one owner text.
 */
#pragma once

#include "io/http_server.h"
#include "mcp/mcp.h"

enum {
    MCP_OWNER_SIZE = 128,
    MCP_SESSIONS_MAX = 1024, /* in all, and ... */
    MCP_SESSIONS_EACH = 64,  /* ... of one owner */
    MCP_STREAMS_MAX = 128,   /* of one session, those that ended and are kept included */
    MCP_KEPT_MAX = 4 << 20,  /* bytes kept of one stream */
};

struct mcp_http;

/* who: what mcp_http_take() was given, dead after the call. id: of the session; "" for lines. */
struct mcp_http_config {
    struct loop *loop;
    const struct mcp_backend *backend;
    void *arg;
    size_t who_size;
    /* A session's backend_arg; NULL with *err: refused. */
    void *(*open)(void *arg, const void *who, const char *id, struct err *err);
    /* The session it has from now on. */
    void (*opened)(void *backend_arg, struct mcp_session *s);
    void (*close)(void *backend_arg);
    /* May be NULL. A session of before a restart, by its id: as open(), or NULL. */
    void *(*revive)(void *arg, const void *who, const char *id);
    unsigned stream_ms; /* 0: 400. An answer that takes longer becomes a stream */
    unsigned kept_ms;   /* 0: 5 minutes. How long a stream that ended can be read again */
    unsigned idle_ms;   /* 0: an hour. Sessions nobody uses end then */
};

struct mcp_http *mcp_http_new(const struct mcp_http_config *config);
void mcp_http_free(struct mcp_http *h);

/* Requests under way and open streams: whoever wants to leave waits for 0. */
size_t mcp_http_busy(const struct mcp_http *h);

/* One request for the path, in on_request(); owner and who are copied. */
void mcp_http_take(struct mcp_http *h, struct http_exchange *x, const char *owner, const void *who);

/* The connection becomes one of lines, and a session. */
void mcp_http_lines(struct mcp_http *h, struct http_exchange *x, const char *owner,
                    const void *who);

/* For a backend: closes the stream of a request early; the client comes back for the answer. */
void mcp_http_hang_up(struct mcp_request *r);
