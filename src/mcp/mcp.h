/*
 * The Model Context Protocol, server side: messages in, messages out, and nothing else.
 *
 * Pure: no descriptor, no clock, no thread. A session is fed parsed messages by a transport
 * (http.h, line.h), asks a backend for what is served, and gives its own messages to the
 * transport's send(). Protocol 2025-06-18 and 2025-11-25; who knows only older ones is served as
 * 2025-06-18.
 *
 * A request that the backend got is answered once, now or later, with mcp_answer() or mcp_refuse(),
 * also after it was cancelled or its session is gone: then the answer goes nowhere.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/jot.h"

#define MCP_VERSION_NEWEST "2025-11-25"
#define MCP_VERSION_OLDEST "2025-06-18"

enum {
    MCP_REQUESTS_MAX = 64, /* under way in one session */
    MCP_SUBSCRIPTIONS_MAX = 256,
    MCP_URI_MAX = 4096,
    MCP_MESSAGE_MAX = 16 << 20, /* one message, either way */
    MCP_PAGE = 50,              /* entries of a list in one answer */
};

/* JSON-RPC's codes, and MCP's own. */
enum mcp_code {
    MCP_PARSE = -32700,
    MCP_INVALID = -32600,
    MCP_NO_METHOD = -32601,
    MCP_PARAMS = -32602,
    MCP_INTERNAL = -32603,
    MCP_NO_SESSION = -32001,
    MCP_NO_RESOURCE = -32002,
    MCP_BUSY = -32000,
};

enum mcp_list { MCP_TOOLS, MCP_RESOURCES, MCP_TEMPLATES, MCP_PROMPTS };

enum mcp_verb {
    MCP_CALL,     /* tools/call: params.name and, if given, the object params.arguments */
    MCP_READ,     /* resources/read: params.uri */
    MCP_PROMPT,   /* prompts/get: params.name, params.arguments */
    MCP_COMPLETE, /* completion/complete: params.ref, params.argument */
};

enum mcp_level {
    MCP_DEBUG,
    MCP_INFO,
    MCP_NOTICE,
    MCP_WARNING,
    MCP_ERROR,
    MCP_CRITICAL,
    MCP_ALERT,
    MCP_EMERGENCY,
};

/* What a client said that it can be asked for. */
enum mcp_ability { MCP_CAN_ELICIT = 1, MCP_CAN_SAMPLE = 2 };

struct mcp_session;
struct mcp_ask;

struct mcp_request {
    struct mcp_session *session; /* NULL: it was cancelled, or its session is gone */
    enum mcp_verb verb;
    const json_t *params; /* an object, valid until it is answered */
    void *user;           /* the backend's */
    void *stream;         /* the transport's */
    /* The rest is the session's. */
    json_t *message;
    struct mcp_request *next, **at;
    struct mcp_ask *asks;
};

struct mcp_backend {
    const char *name, *title, *version, *instructions;
    /* Entries [from, from + max) of a list, each as one object; true: there are more. */
    bool (*list)(void *arg, enum mcp_list what, size_t from, size_t max, struct jot *j);
    void (*handle)(void *arg, struct mcp_request *r);
    /* Nobody waits for it any more: end what it began, then answer it as usual. */
    void (*cancel)(void *arg, struct mcp_request *r);
    /* on: from now on mcp_updated() is of interest for it. */
    int (*subscribe)(void *arg, const char *uri, bool on, struct err *err);
};

/*
 * Where a session's messages go: one JSON text without line ends. stream: of the request that it
 * belongs to, or NULL. last: nothing more comes for that stream; n = 0 if not even this.
 */
struct mcp_wire {
    void *arg;
    void (*send)(void *arg, void *stream, const char *json, size_t n, bool last);
    /* May be NULL. Before a send: the message that came with this stream makes no sense. */
    void (*wrong)(void *arg, void *stream);
};

/* backend_arg is given to every function of the backend. */
struct mcp_session *mcp_session_new(const struct mcp_backend *backend, void *backend_arg,
                                    const struct mcp_wire *wire);
/* It was initialized before our start: what its client can do is not known any more. */
void mcp_session_revive(struct mcp_session *s);
/* Everything under way is cancelled; no more is sent. */
void mcp_session_free(struct mcp_session *s);

/*
 * Bytes as one message. NULL: they are none, and *ret_error is the answer to that (a JSON text, to
 * be freed).
 */
json_t *mcp_parse(const char *bytes, size_t n, char **ret_error);
bool mcp_is_initialize(const json_t *message);

/* Takes the message's reference. What becomes of the stream that came with it: */
enum mcp_receipt {
    MCP_TAKEN, /* nothing: it was a notification or an answer */
    MCP_ASKED, /* it was answered, or will be */
};
enum mcp_receipt mcp_take(struct mcp_session *s, json_t *message, void *stream);

/* An error as a message of its own, with the id of `message` (NULL: none). To be freed. */
char *mcp_error_text(const json_t *message, int code, const char *text, const char *data_json);

/* "2025-06-18" and the like in an HTTP head: can a session be served so? */
bool mcp_version_known(const char *version, size_t n);
/* {"supported":["2025-11-25",...]} */
const char *mcp_versions_json(void);

/* ---- for backends ---- */

/* result: JSON text of an object. */
void mcp_answer(struct mcp_request *r, const char *result, size_t n);
/* data: JSON text or NULL. */
void mcp_refuse(struct mcp_request *r, int code, const char *message, const char *data);

/* Only if the client asked for it. progress must grow; total 0: not known. */
bool mcp_wants_progress(const struct mcp_request *r);
void mcp_progress(struct mcp_request *r, double progress, double total, const char *message);

/* r NULL: it belongs to no request. data: JSON text. */
void mcp_log(struct mcp_session *s, struct mcp_request *r, enum mcp_level level, const char *logger,
             const char *data);
void mcp_updated(struct mcp_session *s, const char *uri);
/* Calls fn with every subscribed uri. */
void mcp_subscriptions(struct mcp_session *s, void (*fn)(void *arg, const char *uri), void *arg);

/*
 * Asks the client something on behalf of a request. fn comes once with the result, or with NULL if
 * the client refused; never if the request is answered or cancelled before.
 */
typedef void mcp_reply_fn(void *arg, const json_t *result);
void mcp_ask(struct mcp_request *r, const char *method, const char *params, mcp_reply_fn *fn,
             void *arg);
unsigned mcp_abilities(const struct mcp_session *s); /* enum mcp_ability */

/* Who it is, as the client itself says; "" before that. */
const char *mcp_client_name(const struct mcp_session *s);
