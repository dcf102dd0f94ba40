/*
 * Sessions of MCP over HTTP and their event streams. Private to src/mcp/http*.c.
 *
 * Events are kept until the client has resumed or KEPT_MS has passed, within EVENTS_MAX.
 */
#pragma once

#include <inttypes.h>

#include "base/id.h"
#include "io/sse.h"
#include "mcp/http.h"

enum {
    BODY_MAX = 8 << 20,
    EVENTS_MAX = 1024,
    TICK_MS = 15000,
    RETRY_MS = 500,
    STREAM_MS = 400,
    KEPT_MS = 5 * 60 * 1000,
    IDLE_MS = 60 * 60 * 1000,
    SESSION_ID_SIZE = 2 * ID_SIZE,
};

/* An event that was sent, or that waits until the client resumes the stream. */
struct kept {
    struct kept *next;
    uint32_t number;
    size_t n;
    char text[];
};

/* An event stream: the answer to one POST, or to the standalone GET. */
struct stream {
    struct session *session;
    struct stream *next, **at;
    uint32_t number;
    struct http_exchange *x; /* connection of the client; NULL: no client is connected */
    struct kept *kept, **kept_end;
    size_t kept_bytes, kept_count;
    uint32_t events; /* number of the last event of the stream */
    bool begun;      /* true: the answer is an event stream; false: not decided yet */
    bool over;
    int status;     /* HTTP status of an error that is answered before the stream begins; 0: 200 */
    bool stateless; /* of version 2026-07-28: events are not kept, and a disconnect cancels */
    bool lost;      /* the client left before the stream began, so it cannot resume the stream */
    bool initialize;
    uint64_t over_ms;
    struct loop_timer *patience;
};

struct session {
    struct mcp_http *http;
    struct session *next, **at;
    char id[SESSION_ID_SIZE]; /* id of the session; empty for a session of JSON lines */
    char owner[MCP_OWNER_SIZE];
    struct mcp_session *core;
    void *backend_arg;
    struct stream *streams;
    struct stream *standalone; /* stream number 0, which exists from the start of the session */
    size_t stream_count;
    uint32_t stream_numbers;
    uint64_t used_ms;
    /* Only for a session of JSON lines: */
    struct http_exchange *line;
    struct buf rest;
    bool closing;   /* session_free() is freeing this session */
    bool stateless; /* of all clients of version 2026-07-28 with the same token and query */
};

struct mcp_http {
    struct mcp_http_config config;
    struct session *sessions;
    size_t session_count, busy;
    struct loop_timer *tick;
};

/* http.c */
uint64_t mcp_http_now(const struct mcp_http *h);
void mcp_http_refuse(struct http_exchange *x, int status, const json_t *message, int code,
                     const char *text, const char *data);
struct session *mcp_http_session_open(struct mcp_http *h, const char *owner, const void *who,
                                      const char *id, struct err *err);
/* Handles a message of a session; takes over its reference. */
void mcp_http_take_message(struct session *s, struct http_exchange *x, json_t *message);

/* http_stateless.c */
bool mcp_http_is_stateless(const struct http_exchange *x, const json_t *message);
/* Checks the headers and finds the session. NULL: the exchange was answered. */
struct session *mcp_http_stateless(struct mcp_http *h, struct http_exchange *x, const char *owner,
                                   const void *who, const json_t *message);

/* http_stream.c */
void mcp_http_listen_with(struct stream *t, struct http_exchange *x);
struct http_exchange *mcp_http_unlisten(struct stream *t);
struct stream *mcp_http_stream_new(struct session *s);
void mcp_http_stream_free(struct stream *t);
void mcp_http_write_event(struct stream *t, const struct kept *k);
void mcp_http_add_event(struct stream *t, const char *json, size_t n);
void mcp_http_patience_over(void *arg);
void mcp_http_reply_json(struct http_exchange *x, int status, const char *session, const char *json,
                         size_t n);
void mcp_http_stream_send(struct stream *t, const char *json, size_t n, bool last);
