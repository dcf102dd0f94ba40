/*
 * MCP over HTTP: Streamable HTTP on one path, and JSON lines over an upgraded connection, which
 * `carrel mcp` connects to its standard streams.
 *
 * A short answer that comes soon is sent as JSON, any other as a stream of events. A stream starts
 * with an empty event, so a client that loses the connection can resume the stream (GET with
 * Last-Event-ID) without loss. Sent events are kept for some minutes, within limits. A disconnect
 * cancels nothing; only a notification does, or the end of the session (DELETE, or closing the
 * upgraded connection).
 *
 * Clients of version 2026-07-28 have no session of their own and cannot resume a stream: for them a
 * disconnect cancels the request.
 *
 * The caller has authenticated the request: a session belongs to one owner string.
 */
#pragma once

#include "io/http_server.h"
#include "mcp/mcp.h"

enum {
    MCP_OWNER_SIZE = 128,
    MCP_SESSIONS_MAX = 1024, /* largest number of sessions in total */
    MCP_SESSIONS_EACH = 64,  /* largest number of sessions per owner */
    /* largest number of event streams per session, including ended ones that are kept */
    MCP_STREAMS_MAX = 128,
    MCP_KEPT_MAX = 4 << 20, /* bytes of sent events kept per stream */
};

struct mcp_http;

/*
 * Settings and callbacks of the server. who: as passed to mcp_http_take(), valid during the call.
 * id: id of the session; "" for a session of JSON lines.
 */
struct mcp_http_config {
    struct loop *loop;
    const struct mcp_backend *backend;
    void *arg;
    size_t who_size;
    /* Returns the backend_arg of a new session. NULL with *err: the session is refused. */
    void *(*open)(void *arg, const void *who, const char *id, struct err *err);
    /* Passes the new session to the backend. */
    void (*opened)(void *backend_arg, struct mcp_session *s);
    void (*close)(void *backend_arg);
    /* Restores a session from before a restart by its id; otherwise like open(). May be NULL. */
    void *(*revive)(void *arg, const void *who, const char *id);
    /*
     * Writes a text that tells stateless clients (version 2026-07-28) of one owner apart: those
     * with the same text share a session. NULL: all of them do.
     */
    void (*name)(void *arg, const void *who, char *ret, size_t size);
    unsigned stream_ms; /* an answer that takes longer is sent as an event stream; 0: 400 ms */
    unsigned kept_ms;   /* how long an ended stream can be read again; 0: 5 minutes */
    unsigned idle_ms;   /* idle sessions end after this time; 0: one hour */
};

struct mcp_http *mcp_http_new(const struct mcp_http_config *config);
void mcp_http_free(struct mcp_http *h);

/* Returns the number of requests in progress and open streams; a graceful shutdown waits for 0. */
size_t mcp_http_busy(const struct mcp_http *h);

/* Handles one HTTP request for the MCP path. Call it in on_request(); owner and who are copied. */
void mcp_http_take(struct mcp_http *h, struct http_exchange *x, const char *owner, const void *who);

/* Turns the HTTP connection into an MCP session of JSON lines. */
void mcp_http_lines(struct mcp_http *h, struct http_exchange *x, const char *owner,
                    const void *who);

/*
 * For backends: closes the event stream of a request early; the client resumes the stream to get
 * the answer.
 */
void mcp_http_hang_up(struct mcp_request *r);
