/*
 * The server side of the Model Context Protocol. It has no descriptors, clocks or threads of its
 * own.
 *
 * A transport (http.h) feeds a session with parsed messages. The session gets tools, resources and
 * prompts from a backend, and sends its messages with the transport's send(). It supports the
 * protocol versions 2025-06-18 and 2025-11-25; clients of older versions get 2025-06-18.
 *
 * It also answers requests of version 2026-07-28, which need no initialize: each request names its
 * version and the client's capabilities in params._meta. A question to the client is then a result
 * of the type input_required, and the client repeats its request with the answer.
 *
 * The backend answers each request exactly once, now or later, with mcp_answer() or mcp_refuse(),
 * even after a cancel or the end of the session; the answer is then dropped.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/jot.h"

#define MCP_VERSION_STATELESS "2026-07-28"
#define MCP_VERSION_NEWEST "2025-11-25"
#define MCP_VERSION_OLDEST "2025-06-18"

enum {
    MCP_REQUESTS_MAX = 64, /* largest number of requests in progress per session */
    MCP_SUBSCRIPTIONS_MAX = 256,
    MCP_URI_MAX = 4096,
    MCP_MESSAGE_MAX = 16 << 20, /* largest size of one message in bytes, in both directions */
    MCP_PAGE = 50,              /* largest number of list entries in one answer */
};

/* Error codes of JSON-RPC and MCP. */
enum mcp_code {
    MCP_PARSE = -32700,
    MCP_INVALID = -32600,
    MCP_NO_METHOD = -32601,
    MCP_PARAMS = -32602,
    MCP_INTERNAL = -32603,
    MCP_NO_SESSION = -32001,
    MCP_NO_RESOURCE = -32002,
    MCP_BUSY = -32000,
    /* Only of version 2026-07-28: */
    MCP_HEADERS = -32020,    /* the HTTP headers do not match the message */
    MCP_NO_ABILITY = -32021, /* the client lacks a capability; data.requiredCapabilities */
    MCP_NO_VERSION = -32022,
};

enum mcp_list { MCP_TOOLS, MCP_RESOURCES, MCP_TEMPLATES, MCP_PROMPTS };

enum mcp_verb {
    MCP_CALL,     /* tools/call: params.name and, if given, the object params.arguments */
    MCP_READ,     /* resources/read: params.uri */
    MCP_PROMPT,   /* prompts/get: params.name, params.arguments */
    MCP_COMPLETE, /* completion/complete: params.ref, params.argument */
    MCP_LIST,     /* tools/list, if must_wait() said so: answer it with mcp_answer_list() */
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

/* Capabilities that the client announced. */
enum mcp_ability { MCP_CAN_ELICIT = 1, MCP_CAN_SAMPLE = 2, MCP_CAN_LIST_ROOTS = 4 };

struct mcp_session;
struct mcp_ask;

struct mcp_request {
    struct mcp_session *session; /* NULL: the request was cancelled, or the session ended */
    enum mcp_verb verb;
    /* parameters of the request: an object, valid until the request is answered */
    const json_t *params;
    void *user;     /* set and used only by the backend */
    void *stream;   /* set and used only by the transport */
    bool stateless; /* the request is of version 2026-07-28 */
    /* The following fields are private to mcp.c and methods.c. */
    unsigned abilities;
    int level; /* smallest enum mcp_level of log messages; only of a stateless request */
    json_t *message;
    struct mcp_request *next, **at;
    struct mcp_ask *asks;
};

struct mcp_backend {
    const char *name, *title, *version, *instructions;
    /* Adds to the instructions what is known about this session. May be NULL. */
    void (*describe)(void *arg, struct buf *to);
    /* Writes the entries [from, from + max) of a list, each as one object. True: there are more. */
    bool (*list)(void *arg, enum mcp_list what, size_t from, size_t max, struct jot *j);
    /* True if the tools are not known yet: the request goes to handle(). May be NULL. */
    bool (*must_wait)(void *arg);
    void (*handle)(void *arg, struct mcp_request *r);
    /* Called when a request was cancelled: stop the work on it, then answer it as usual. */
    void (*cancel)(void *arg, struct mcp_request *r);
    /* Starts (on) or stops notifications of the client about changes of this uri: mcp_updated(). */
    int (*subscribe)(void *arg, const char *uri, bool on, struct err *err);
};

/*
 * The transport of a session. send() sends one message: a JSON text without newlines. stream: the
 * stream of the request that the message belongs to, or NULL. last: no more messages follow on that
 * stream; n may then be 0.
 */
struct mcp_wire {
    void *arg;
    void (*send)(void *arg, void *stream, const char *json, size_t n, bool last);
    /* Called before send() if the answer on this stream is an error with an HTTP status of its own,
     * such as 400 for a malformed message. May be NULL. */
    void (*wrong)(void *arg, void *stream, int status);
};

/* Creates a session. backend_arg is passed to every function of the backend. */
struct mcp_session *mcp_session_new(const struct mcp_backend *backend, void *backend_arg,
                                    const struct mcp_wire *wire);
/*
 * Continues a session that was initialized before a restart. The client's capabilities are unknown.
 */
void mcp_session_revive(struct mcp_session *s);
/* Frees the session: cancels all requests and sends nothing more. */
void mcp_session_free(struct mcp_session *s);

/*
 * Parses bytes as one message. NULL: the message is malformed; *ret_error is the JSON answer, which
 * the caller frees.
 */
json_t *mcp_parse(const char *bytes, size_t n, char **ret_error);
bool mcp_is_initialize(const json_t *message);
/* True if the message is of version 2026-07-28 or later: it names its version, or asks for ours. */
bool mcp_is_stateless(const json_t *message);
/* The protocol version that a stateless message names; NULL: none. */
const char *mcp_stateless_version(const json_t *message);
/* Cancels the request of this stream, because its client is gone. */
void mcp_cancel_stream(struct mcp_session *s, const void *stream);

/*
 * mcp_take() handles a message and takes over its reference. It returns what to do with the stream:
 */
enum mcp_receipt {
    MCP_TAKEN, /* no answer follows: the message was a notification or an answer */
    MCP_ASKED, /* an answer was sent or will follow */
};
enum mcp_receipt mcp_take(struct mcp_session *s, json_t *message, void *stream);

/* Returns an error answer to `message` (NULL: without id) as JSON text, to be freed. */
char *mcp_error_text(const json_t *message, int code, const char *text, const char *data_json);

/* True if the protocol version from an HTTP header is supported. */
bool mcp_version_known(const char *version, size_t n);
/* Returns the supported protocol versions as JSON: {"supported":["2026-07-28",...]} */
const char *mcp_versions_json(void);

/* ---- for backends ---- */

/* Answers a request. result: JSON text of an object. */
void mcp_answer(struct mcp_request *r, const char *result, size_t n);
/* Answers a request of the verb MCP_LIST with the list as it is now. */
void mcp_answer_list(struct mcp_request *r);
/* Answers a request with an error. data: JSON text or NULL. */
void mcp_refuse(struct mcp_request *r, int code, const char *message, const char *data);

/*
 * Progress of a request is sent only if the client asked for it, and must grow. total 0: unknown.
 */
bool mcp_wants_progress(const struct mcp_request *r);
void mcp_progress(struct mcp_request *r, double progress, double total, const char *message);

/*
 * Sends a log message to the client. r: the request that the message belongs to, or NULL. data:
 * JSON text.
 */
void mcp_log(struct mcp_session *s, struct mcp_request *r, enum mcp_level level, const char *logger,
             const char *data);
void mcp_updated(struct mcp_session *s, const char *uri);
/* Calls fn with every uri whose changes the client subscribed to. */
void mcp_subscriptions(struct mcp_session *s, void (*fn)(void *arg, const char *uri), void *arg);

/*
 * Sends a request to the client while the server handles one of the client's requests. fn is called
 * once with the result, or with NULL if the client refused; never after the request was answered or
 * cancelled.
 */
typedef void mcp_reply_fn(void *arg, const json_t *result);
void mcp_ask(struct mcp_request *r, const char *method, const char *params, mcp_reply_fn *fn,
             void *arg);
unsigned mcp_abilities(const struct mcp_request *r); /* bits of enum mcp_ability */

/*
 * For a stateless request instead of mcp_ask(). mcp_input() returns the client's answer to the
 * question of this name, an object; NULL: the client has not answered it. mcp_need_input() answers
 * the request with questions. questions: JSON text, an object of name to {"method":, "params":}.
 * state: opaque text that the client sends back, or NULL; the client can change it.
 */
const json_t *mcp_input(const struct mcp_request *r, const char *name);
void mcp_need_input(struct mcp_request *r, const char *questions, const char *state);

/* Returns the name that the client reported; "" before initialize. */
const char *mcp_client_name(const struct mcp_session *s);
