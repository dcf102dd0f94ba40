#include "mcp/mcp.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/parse.h"
#include "mcp/mcp_inner.h"

/* A request from this server that the client has not answered yet. */
struct mcp_ask {
    struct mcp_ask *next;
    uint64_t number;
    mcp_reply_fn *fn;
    void *arg;
};

const char *const mcp_level_names[] = {"debug", "info",     "notice", "warning",
                                       "error", "critical", "alert",  "emergency"};
/* ---- messages to the client ---- */

const char *mcp_member(const json_t *object, const char *name) {
    return json_string_value(json_object_get(object, name));
}

void mcp_put_id(struct jot *j, const char *name, const json_t *id) {
    char *text DEFER_FREE = id ? json_dumps(id, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    if (text)
        jot_raw(j, name, text);
    else
        jot_null(j, name);
}

void mcp_begin_message(struct jot *j) {
    jot_object(j, NULL);
    jot_string(j, "jsonrpc", "2.0");
}

static void put_error(struct jot *j, const json_t *id, int code, const char *text,
                      const char *data) {
    mcp_begin_message(j);
    mcp_put_id(j, "id", id);
    jot_object(j, "error");
    jot_i64(j, "code", code);
    jot_string(j, "message", text);
    if (data)
        jot_raw(j, "data", data);
    jot_end(j, '}');
    jot_end(j, '}');
}

const json_t *mcp_id_of(const json_t *message) {
    const json_t *id = json_object_get(message, "id");
    return json_is_string(id) || json_is_integer(id) ? id : NULL;
}

char *mcp_error_text(const json_t *message, int code, const char *text, const char *data_json) {
    struct buf out DEFER(buf_done) = BUF(MCP_MESSAGE_MAX);
    struct jot j = JOT(&out);
    put_error(&j, mcp_id_of(message), code, text, data_json);
    return buf_take(&out);
}

void mcp_send_text(struct mcp_session *s, void *stream, const struct jot *j, bool last) {
    if (j->failed || !j->out->data)
        s->wire.send(s->wire.arg, stream, NULL, 0, last);
    else
        s->wire.send(s->wire.arg, stream, j->out->data, j->out->len, last);
}

enum mcp_receipt mcp_refuse_with(struct mcp_session *s, const json_t *message, void *stream,
                                 int code, const char *text, const char *data, int status) {
    struct buf out DEFER(buf_done) = BUF(MCP_MESSAGE_MAX);
    struct jot j = JOT(&out);
    put_error(&j, mcp_id_of(message), code, text, data);
    if (status && s->wire.wrong)
        s->wire.wrong(s->wire.arg, stream, status);
    mcp_send_text(s, stream, &j, true);
    return MCP_ASKED;
}

enum mcp_receipt mcp_refuse_message(struct mcp_session *s, const json_t *message, void *stream,
                                    int code, const char *text) {
    return mcp_refuse_with(s, message, stream, code, text, NULL, code == MCP_INVALID ? 400 : 0);
}

/* ---- requests in progress ---- */

static void request_unlink(struct mcp_request *r) {
    if (!r->at)
        return;
    *r->at = r->next;
    if (r->next)
        r->next->at = r->at;
    r->at = NULL;
    if (r->session)
        r->session->request_count--;
}

static void asks_drop(struct mcp_request *r) {
    for (struct mcp_ask *a = r->asks, *next; a; a = next) {
        next = a->next;
        free(a);
    }
    r->asks = NULL;
}

static void request_free(struct mcp_request *r) {
    request_unlink(r);
    asks_drop(r);
    json_decref(r->message);
    free(r);
}

/* Detaches a cancelled request from its session. The request is freed when its backend answers. */
static void request_cancel(struct mcp_request *r) {
    struct mcp_session *s = r->session;
    request_unlink(r);
    asks_drop(r);
    r->session = NULL;
    s->backend->cancel(s->backend_arg, r);
}

void mcp_finish(struct mcp_request *r, const struct jot *j) {
    struct mcp_session *s = r->session;
    void *stream = r->stream;
    request_free(r);
    if (s)
        mcp_send_text(s, stream, j, true);
}

void mcp_refuse(struct mcp_request *r, int code, const char *message, const char *data) {
    struct buf out DEFER(buf_done) = BUF(MCP_MESSAGE_MAX);
    struct jot j = JOT(&out);
    if (r->stateless && code == MCP_NO_RESOURCE)
        code = MCP_PARAMS;
    put_error(&j, mcp_id_of(r->message), code, message, data);
    if (r->session && code == MCP_NO_ABILITY && r->session->wire.wrong)
        r->session->wire.wrong(r->session->wire.arg, r->stream, 400);
    mcp_finish(r, &j);
}

/* Writes the member `result`: an object whose first members are `members`. */
void mcp_put_result(struct jot *j, const char *result, size_t n, const char *members) {
    bool empty = n <= 2;
    jot_raw(j, "result", "");
    if (!j->failed && *members)
        j->failed = !buf_addf(j->out, "{%s%s", members, empty ? "" : ",") ||
                    !buf_add(j->out, result + 1, n - 1);
    else if (!j->failed)
        j->failed = !buf_add(j->out, result, n);
}

void mcp_answer(struct mcp_request *r, const char *result, size_t n) {
    struct buf out DEFER(buf_done) = BUF(MCP_MESSAGE_MAX);
    struct jot j = JOT(&out);
    mcp_begin_message(&j);
    mcp_put_id(&j, "id", mcp_id_of(r->message));
    mcp_put_result(&j, result, n,
                   !r->stateless ? ""
                   : r->verb == MCP_READ || r->verb == MCP_LIST
                       ? "\"resultType\":\"complete\"," MCP_UNCACHED
                       : "\"resultType\":\"complete\"");
    jot_end(&j, '}');
    if (j.failed)
        mcp_refuse(r, MCP_INTERNAL, "the answer is larger than an MCP message may be", NULL);
    else
        mcp_finish(r, &j);
}

/* ---- notifications and requests to the client ---- */

static const json_t *progress_token(const struct mcp_request *r) {
    const json_t *token = json_object_get(json_object_get(r->params, "_meta"), "progressToken");
    return json_is_string(token) || json_is_integer(token) ? token : NULL;
}

bool mcp_wants_progress(const struct mcp_request *r) {
    return r->session && progress_token(r);
}

static void mcp_put_number(struct jot *j, const char *name, double value) {
    char text[40];
    snprintf(text, sizeof(text), "%.15g", value);
    jot_raw(j, name, text);
}

void mcp_progress(struct mcp_request *r, double progress, double total, const char *message) {
    struct buf out DEFER(buf_done) = BUF(MCP_MESSAGE_MAX);
    struct jot j = JOT(&out);
    if (!mcp_wants_progress(r))
        return;
    mcp_begin_message(&j);
    jot_string(&j, "method", "notifications/progress");
    jot_object(&j, "params");
    mcp_put_id(&j, "progressToken", progress_token(r));
    mcp_put_number(&j, "progress", progress);
    if (total > 0)
        mcp_put_number(&j, "total", total);
    if (message)
        jot_string(&j, "message", message);
    jot_end(&j, '}');
    jot_end(&j, '}');
    mcp_send_text(r->session, r->stream, &j, false);
}

void mcp_log(struct mcp_session *s, struct mcp_request *r, enum mcp_level level, const char *logger,
             const char *data) {
    struct buf out DEFER(buf_done) = BUF(MCP_MESSAGE_MAX);
    struct jot j = JOT(&out);
    if (!s || (r && !r->session))
        return;
    if (r && r->stateless ? (int)level < r->level : !s->greeted || level < s->level)
        return;
    mcp_begin_message(&j);
    jot_string(&j, "method", "notifications/message");
    jot_object(&j, "params");
    jot_string(&j, "level", mcp_level_names[level]);
    if (logger)
        jot_string(&j, "logger", logger);
    jot_raw(&j, "data", data);
    jot_end(&j, '}');
    jot_end(&j, '}');
    mcp_send_text(s, r ? r->stream : NULL, &j, false);
}

void mcp_updated(struct mcp_session *s, const char *uri) {
    struct buf out DEFER(buf_done) = BUF(MCP_MESSAGE_MAX);
    struct jot j = JOT(&out);
    mcp_begin_message(&j);
    jot_string(&j, "method", "notifications/resources/updated");
    jot_object(&j, "params");
    jot_string(&j, "uri", uri);
    jot_end(&j, '}');
    jot_end(&j, '}');
    mcp_send_text(s, NULL, &j, false);
}

void mcp_subscriptions(struct mcp_session *s, void (*fn)(void *arg, const char *uri), void *arg) {
    for (struct subscription *u = s->subscriptions; u; u = u->next)
        fn(arg, u->uri);
}

unsigned mcp_abilities(const struct mcp_request *r) {
    return r->abilities;
}

const char *mcp_client_name(const struct mcp_session *s) {
    return s->client;
}

void mcp_ask(struct mcp_request *r, const char *method, const char *params, mcp_reply_fn *fn,
             void *arg) {
    struct buf out DEFER(buf_done) = BUF(MCP_MESSAGE_MAX);
    struct jot j = JOT(&out);
    char id[32];
    if (!r->session)
        return;
    struct mcp_ask *ask = xnew(struct mcp_ask);
    *ask = (struct mcp_ask){.next = r->asks, .number = ++r->session->asked, .fn = fn, .arg = arg};
    r->asks = ask;
    snprintf(id, sizeof(id), "carrel-%" PRIu64, ask->number);
    mcp_begin_message(&j);
    jot_string(&j, "id", id);
    jot_string(&j, "method", method);
    jot_raw(&j, "params", params);
    jot_end(&j, '}');
    mcp_send_text(r->session, r->stream, &j, false);
}

/* Handles an answer of the client. It is ignored if it answers no pending request. */
static void take_reply(struct mcp_session *s, const json_t *message) {
    const char *id = mcp_member(message, "id");
    uint64_t number;
    if (!id || strncmp(id, "carrel-", 7) != 0 ||
        parse_u64(id + 7, 1, UINT64_MAX, &number, NULL) < 0)
        return;
    for (struct mcp_request *r = s->requests; r; r = r->next)
        for (struct mcp_ask **at = &r->asks; *at; at = &(*at)->next) {
            struct mcp_ask ask = **at;
            if (ask.number != number)
                continue;
            free(*at);
            *at = ask.next;
            const json_t *result = json_object_get(message, "result");
            ask.fn(ask.arg, json_is_object(result) ? result : NULL);
            return;
        }
}

/* ---- messages from the client ---- */

bool mcp_same_id(const json_t *a, const json_t *b) {
    return a && b && json_equal(a, b);
}

/* Handles notifications/cancelled. Other notifications are ignored. */
static void take_cancelled(struct mcp_session *s, const json_t *params) {
    const json_t *id = json_object_get(params, "requestId");
    for (struct mcp_request *r = s->requests; r; r = r->next)
        if (mcp_same_id(mcp_id_of(r->message), id)) {
            void *stream = r->stream;
            request_cancel(r);
            s->wire.send(s->wire.arg, stream, NULL, 0, true);
            return;
        }
}

void mcp_cancel_stream(struct mcp_session *s, const void *stream) {
    for (struct mcp_request *r = s->requests; r; r = r->next)
        if (r->stream == stream) {
            request_cancel(r);
            return;
        }
}

static enum mcp_receipt mcp_take_message(struct mcp_session *s, json_t *message, void *stream) {
    const char *method = mcp_member(message, "method");
    const json_t *version = json_object_get(message, "jsonrpc");
    json_t *params = json_object_get(message, "params");
    if (!json_is_string(version) || strcmp(json_string_value(version), "2.0") != 0)
        return mcp_refuse_message(s, message, stream, MCP_INVALID,
                                  "the field jsonrpc must be \"2.0\"");
    if (!method) {
        bool answer = json_object_get(message, "result") || json_object_get(message, "error");
        if (!answer || !json_object_get(message, "id"))
            return mcp_refuse_message(
                s, message, stream, MCP_INVALID,
                "an MCP message must have a method, or an id with a result or error");
        take_reply(s, message);
        return MCP_TAKEN;
    }
    if (params && !json_is_object(params))
        return mcp_refuse_message(s, message, stream, MCP_INVALID,
                                  "the field params must be an object");
    if (json_object_get(message, "id"))
        return mcp_take_request(s, message, method, params, stream);
    if (strcmp(method, "notifications/cancelled") == 0)
        take_cancelled(s, params);
    return MCP_TAKEN;
}

enum mcp_receipt mcp_take(struct mcp_session *s, json_t *message, void *stream) {
    enum mcp_receipt r = mcp_take_message(s, message, stream);
    json_decref(message);
    return r;
}

json_t *mcp_parse(const char *bytes, size_t n, char **ret_error) {
    char text[240];
    json_error_t why;
    json_t *message = n ? json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &why) : NULL;
    if (json_is_object(message))
        return message;
    if (!n)
        snprintf(text, sizeof(text), "the MCP message is empty");
    else if (!message)
        snprintf(text, sizeof(text), "the MCP message is not JSON: line %d column %d: %s", why.line,
                 why.column, why.text);
    else
        snprintf(text, sizeof(text),
                 "an MCP message must be one JSON object; batches are not supported");
    *ret_error = mcp_error_text(NULL, message ? MCP_INVALID : MCP_PARSE, text, NULL);
    json_decref(message);
    return NULL;
}

bool mcp_is_initialize(const json_t *message) {
    const char *method = mcp_member(message, "method");
    return method && strcmp(method, "initialize") == 0 && json_object_get(message, "id");
}

bool mcp_version_known(const char *version, size_t n) {
    static const char *const served[] = {MCP_VERSION_NEWEST, MCP_VERSION_OLDEST, "2025-03-26"};
    for (size_t i = 0; i < sizeof(served) / sizeof(*served); i++)
        if (strlen(served[i]) == n && memcmp(served[i], version, n) == 0)
            return true;
    return false;
}

const char *mcp_versions_json(void) {
    return "{\"supported\":[\"" MCP_VERSION_STATELESS "\",\"" MCP_VERSION_NEWEST
           "\",\"" MCP_VERSION_OLDEST "\"]}";
}

/* ---- start and end of a session ---- */

struct mcp_session *mcp_session_new(const struct mcp_backend *backend, void *backend_arg,
                                    const struct mcp_wire *wire) {
    struct mcp_session *s = xnew(struct mcp_session);
    *s = (struct mcp_session){
        .backend = backend, .backend_arg = backend_arg, .wire = *wire, .level = MCP_INFO};
    return s;
}

void mcp_session_revive(struct mcp_session *s) {
    s->greeted = true;
}

void mcp_session_free(struct mcp_session *s) {
    if (!s)
        return;
    while (s->requests) {
        struct mcp_request *r = s->requests;
        request_unlink(r);
        asks_drop(r);
        r->session = NULL;
        s->backend->cancel(s->backend_arg, r);
    }
    while (s->subscriptions)
        mcp_subscription_drop(s, &s->subscriptions);
    free(s);
}
