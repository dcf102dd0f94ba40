#include "mcp/mcp.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "base/parse.h"

struct subscription {
    struct subscription *next;
    char uri[];
};

/* A question of ours that the client has not answered. */
struct mcp_ask {
    struct mcp_ask *next;
    uint64_t number;
    mcp_reply_fn *fn;
    void *arg;
};

struct mcp_session {
    const struct mcp_backend *backend;
    void *backend_arg;
    struct mcp_wire wire;
    bool greeted; /* initialize was answered */
    unsigned abilities;
    enum mcp_level level;
    struct mcp_request *requests;
    size_t request_count;
    struct subscription *subscriptions;
    size_t subscription_count;
    uint64_t asked;
    char client[128];
};

/* Newest first. */
static const char *const versions[] = {MCP_VERSION_NEWEST, MCP_VERSION_OLDEST};
enum { VERSIONS = sizeof(versions) / sizeof(*versions) };

static const char *const level_names[] = {"debug", "info",     "notice", "warning",
                                          "error", "critical", "alert",  "emergency"};
enum { LEVELS = sizeof(level_names) / sizeof(*level_names) };

/* ---- messages out ---- */

static const char *member(const json_t *object, const char *name) {
    return json_string_value(json_object_get(object, name));
}

static void put_id(struct jot *j, const char *name, const json_t *id) {
    char *text DEFER_FREE = id ? json_dumps(id, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    if (text)
        jot_raw(j, name, text);
    else
        jot_null(j, name);
}

static void begin(struct jot *j) {
    jot_object(j, NULL);
    jot_string(j, "jsonrpc", "2.0");
}

static void put_error(struct jot *j, const json_t *id, int code, const char *text,
                      const char *data) {
    begin(j);
    put_id(j, "id", id);
    jot_object(j, "error");
    jot_i64(j, "code", code);
    jot_string(j, "message", text);
    if (data)
        jot_raw(j, "data", data);
    jot_end(j, '}');
    jot_end(j, '}');
}

static const json_t *id_of(const json_t *message) {
    const json_t *id = json_object_get(message, "id");
    return json_is_string(id) || json_is_integer(id) ? id : NULL;
}

char *mcp_error_text(const json_t *message, int code, const char *text, const char *data_json) {
    struct buf out DEFER(buf_done) = BUF(MCP_MESSAGE_MAX);
    struct jot j = JOT(&out);
    put_error(&j, id_of(message), code, text, data_json);
    return buf_take(&out);
}

static void send_text(struct mcp_session *s, void *stream, const struct jot *j, bool last) {
    if (j->failed || !j->out->data)
        s->wire.send(s->wire.arg, stream, NULL, 0, last);
    else
        s->wire.send(s->wire.arg, stream, j->out->data, j->out->len, last);
}

static enum mcp_receipt refuse(struct mcp_session *s, const json_t *message, void *stream, int code,
                               const char *text) {
    struct buf out DEFER(buf_done) = BUF(MCP_MESSAGE_MAX);
    struct jot j = JOT(&out);
    put_error(&j, id_of(message), code, text, NULL);
    if (code == MCP_INVALID && s->wire.wrong)
        s->wire.wrong(s->wire.arg, stream);
    send_text(s, stream, &j, true);
    return MCP_ASKED;
}

/* ---- requests under way ---- */

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

/* Nobody hears of it any more. It stays until its backend has answered. */
static void request_cancel(struct mcp_request *r) {
    struct mcp_session *s = r->session;
    request_unlink(r);
    asks_drop(r);
    r->session = NULL;
    s->backend->cancel(s->backend_arg, r);
}

static void finish(struct mcp_request *r, const struct jot *j) {
    struct mcp_session *s = r->session;
    void *stream = r->stream;
    request_free(r);
    if (s)
        send_text(s, stream, j, true);
}

void mcp_refuse(struct mcp_request *r, int code, const char *message, const char *data) {
    struct buf out DEFER(buf_done) = BUF(MCP_MESSAGE_MAX);
    struct jot j = JOT(&out);
    put_error(&j, id_of(r->message), code, message, data);
    finish(r, &j);
}

void mcp_answer(struct mcp_request *r, const char *result, size_t n) {
    struct buf out DEFER(buf_done) = BUF(MCP_MESSAGE_MAX);
    struct jot j = JOT(&out);
    begin(&j);
    put_id(&j, "id", id_of(r->message));
    jot_raw(&j, "result", "");
    if (!j.failed && !buf_add(&out, result, n))
        j.failed = true;
    jot_end(&j, '}');
    if (j.failed)
        mcp_refuse(r, MCP_INTERNAL, "the answer is larger than a message may be", NULL);
    else
        finish(r, &j);
}

/* ---- notifications and questions ---- */

static const json_t *progress_token(const struct mcp_request *r) {
    const json_t *token = json_object_get(json_object_get(r->params, "_meta"), "progressToken");
    return json_is_string(token) || json_is_integer(token) ? token : NULL;
}

bool mcp_wants_progress(const struct mcp_request *r) {
    return r->session && progress_token(r);
}

static void put_number(struct jot *j, const char *name, double value) {
    char text[40];
    snprintf(text, sizeof(text), "%.15g", value);
    jot_raw(j, name, text);
}

void mcp_progress(struct mcp_request *r, double progress, double total, const char *message) {
    struct buf out DEFER(buf_done) = BUF(MCP_MESSAGE_MAX);
    struct jot j = JOT(&out);
    if (!mcp_wants_progress(r))
        return;
    begin(&j);
    jot_string(&j, "method", "notifications/progress");
    jot_object(&j, "params");
    put_id(&j, "progressToken", progress_token(r));
    put_number(&j, "progress", progress);
    if (total > 0)
        put_number(&j, "total", total);
    if (message)
        jot_string(&j, "message", message);
    jot_end(&j, '}');
    jot_end(&j, '}');
    send_text(r->session, r->stream, &j, false);
}

void mcp_log(struct mcp_session *s, struct mcp_request *r, enum mcp_level level, const char *logger,
             const char *data) {
    struct buf out DEFER(buf_done) = BUF(MCP_MESSAGE_MAX);
    struct jot j = JOT(&out);
    if (!s || !s->greeted || level < s->level || (r && !r->session))
        return;
    begin(&j);
    jot_string(&j, "method", "notifications/message");
    jot_object(&j, "params");
    jot_string(&j, "level", level_names[level]);
    if (logger)
        jot_string(&j, "logger", logger);
    jot_raw(&j, "data", data);
    jot_end(&j, '}');
    jot_end(&j, '}');
    send_text(s, r ? r->stream : NULL, &j, false);
}

void mcp_updated(struct mcp_session *s, const char *uri) {
    struct buf out DEFER(buf_done) = BUF(MCP_MESSAGE_MAX);
    struct jot j = JOT(&out);
    begin(&j);
    jot_string(&j, "method", "notifications/resources/updated");
    jot_object(&j, "params");
    jot_string(&j, "uri", uri);
    jot_end(&j, '}');
    jot_end(&j, '}');
    send_text(s, NULL, &j, false);
}

void mcp_subscriptions(struct mcp_session *s, void (*fn)(void *arg, const char *uri), void *arg) {
    for (struct subscription *u = s->subscriptions; u; u = u->next)
        fn(arg, u->uri);
}

unsigned mcp_abilities(const struct mcp_session *s) {
    return s->abilities;
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
    struct mcp_ask *ask = calloc(1, sizeof(*ask));
    if (!ask)
        abort();
    *ask = (struct mcp_ask){.next = r->asks, .number = ++r->session->asked, .fn = fn, .arg = arg};
    r->asks = ask;
    snprintf(id, sizeof(id), "carrel-%" PRIu64, ask->number);
    begin(&j);
    jot_string(&j, "id", id);
    jot_string(&j, "method", method);
    jot_raw(&j, "params", params);
    jot_end(&j, '}');
    send_text(r->session, r->stream, &j, false);
}

/* An answer of the client. What we did not ask, or no longer wait for, is ignored. */
static void take_reply(struct mcp_session *s, const json_t *message) {
    const char *id = member(message, "id");
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

/* ---- methods that the session answers itself ---- */

static void answer_now(struct mcp_session *s, const json_t *message, void *stream,
                       const struct buf *result) {
    struct buf out DEFER(buf_done) = BUF(MCP_MESSAGE_MAX);
    struct jot j = JOT(&out);
    begin(&j);
    put_id(&j, "id", id_of(message));
    jot_raw(&j, "result", result ? result->data : "{}");
    jot_end(&j, '}');
    send_text(s, stream, &j, true);
}

static enum mcp_receipt do_ping(struct mcp_session *s, const json_t *message, const json_t *params,
                                void *stream) {
    (void)params;
    answer_now(s, message, stream, NULL);
    return MCP_ASKED;
}

/* The client's if we know it; older ones get our oldest, all others our newest. */
static const char *agree(const char *wanted) {
    for (size_t i = 0; i < VERSIONS; i++)
        if (strcmp(versions[i], wanted) == 0)
            return versions[i];
    return strcmp(wanted, MCP_VERSION_OLDEST) < 0 ? MCP_VERSION_OLDEST : MCP_VERSION_NEWEST;
}

static void put_capabilities(struct jot *j) {
    jot_object(j, "capabilities");
    jot_raw(j, "tools", "{}");
    jot_raw(j, "resources", "{\"subscribe\":true}");
    jot_raw(j, "prompts", "{}");
    jot_raw(j, "logging", "{}");
    jot_raw(j, "completions", "{}");
    jot_end(j, '}');
}

static enum mcp_receipt do_initialize(struct mcp_session *s, const json_t *message,
                                      const json_t *params, void *stream) {
    const struct mcp_backend *b = s->backend;
    struct buf out DEFER(buf_done) = BUF(64 << 10);
    struct jot j = JOT(&out);
    const char *wanted = member(params, "protocolVersion");
    const json_t *can = json_object_get(params, "capabilities");
    const char *name = member(json_object_get(params, "clientInfo"), "name");
    if (s->greeted)
        return refuse(s, message, stream, MCP_INVALID, "this session was initialized already");
    if (!wanted)
        return refuse(s, message, stream, MCP_PARAMS, "params.protocolVersion must be a text");
    s->abilities = (json_is_object(json_object_get(can, "elicitation")) ? MCP_CAN_ELICIT : 0) |
                   (json_is_object(json_object_get(can, "sampling")) ? MCP_CAN_SAMPLE : 0);
    snprintf(s->client, sizeof(s->client), "%s", name ? name : "");
    jot_object(&j, NULL);
    jot_string(&j, "protocolVersion", agree(wanted));
    put_capabilities(&j);
    jot_object(&j, "serverInfo");
    jot_string(&j, "name", b->name);
    jot_string(&j, "title", b->title);
    jot_string(&j, "version", b->version);
    jot_end(&j, '}');
    if (b->instructions)
        jot_string(&j, "instructions", b->instructions);
    jot_end(&j, '}');
    s->greeted = true;
    answer_now(s, message, stream, &out);
    return MCP_ASKED;
}

static enum mcp_receipt do_level(struct mcp_session *s, const json_t *message, const json_t *params,
                                 void *stream) {
    const char *name = member(params, "level");
    for (size_t i = 0; name && i < LEVELS; i++)
        if (strcmp(level_names[i], name) == 0) {
            s->level = (enum mcp_level)i;
            answer_now(s, message, stream, NULL);
            return MCP_ASKED;
        }
    return refuse(s, message, stream, MCP_PARAMS,
                  "params.level must be one of debug info notice warning error critical alert "
                  "emergency");
}

/* A cursor is where the next page begins; it is ours to read only. */
static int read_cursor(const json_t *params, size_t *ret) {
    const json_t *cursor = json_object_get(params, "cursor");
    const char *text = json_string_value(cursor);
    uint64_t at;
    *ret = 0;
    if (!cursor)
        return 0;
    if (!text || text[0] != 'p' || parse_u64(text + 1, 1, 1000000, &at, NULL) < 0)
        return -1;
    *ret = (size_t)at;
    return 0;
}

static enum mcp_receipt do_list(struct mcp_session *s, const json_t *message, const json_t *params,
                                void *stream, enum mcp_list what) {
    static const char *const names[] = {"tools", "resources", "resourceTemplates", "prompts"};
    struct buf out DEFER(buf_done) = BUF(MCP_MESSAGE_MAX);
    struct jot j = JOT(&out);
    char next[24];
    size_t from;
    if (read_cursor(params, &from) < 0)
        return refuse(s, message, stream, MCP_PARAMS,
                      "params.cursor is not one that this server gave");
    jot_object(&j, NULL);
    jot_array(&j, names[what]);
    bool more = s->backend->list(s->backend_arg, what, from, MCP_PAGE, &j);
    jot_end(&j, ']');
    snprintf(next, sizeof(next), "p%zu", from + MCP_PAGE);
    if (more)
        jot_string(&j, "nextCursor", next);
    jot_end(&j, '}');
    if (j.failed)
        return refuse(s, message, stream, MCP_INTERNAL, "the list is too long");
    answer_now(s, message, stream, &out);
    return MCP_ASKED;
}

static enum mcp_receipt do_tools(struct mcp_session *s, const json_t *message, const json_t *params,
                                 void *stream) {
    return do_list(s, message, params, stream, MCP_TOOLS);
}

static enum mcp_receipt do_resources(struct mcp_session *s, const json_t *message,
                                     const json_t *params, void *stream) {
    return do_list(s, message, params, stream, MCP_RESOURCES);
}

static enum mcp_receipt do_templates(struct mcp_session *s, const json_t *message,
                                     const json_t *params, void *stream) {
    return do_list(s, message, params, stream, MCP_TEMPLATES);
}

static enum mcp_receipt do_prompts(struct mcp_session *s, const json_t *message,
                                   const json_t *params, void *stream) {
    return do_list(s, message, params, stream, MCP_PROMPTS);
}

static struct subscription **subscribed(struct mcp_session *s, const char *uri) {
    struct subscription **at = &s->subscriptions;
    while (*at && strcmp((*at)->uri, uri) != 0)
        at = &(*at)->next;
    return at;
}

static void subscription_add(struct mcp_session *s, const char *uri) {
    size_t n = strlen(uri) + 1;
    struct subscription *u = malloc(sizeof(*u) + n);
    if (!u)
        abort();
    memcpy(u->uri, uri, n);
    u->next = s->subscriptions;
    s->subscriptions = u;
    s->subscription_count++;
}

static void subscription_drop(struct mcp_session *s, struct subscription **at) {
    struct subscription *gone = *at;
    *at = gone->next;
    free(gone);
    s->subscription_count--;
}

static enum mcp_receipt change_subscription(struct mcp_session *s, const json_t *message,
                                            const json_t *params, void *stream, bool on) {
    const char *uri = member(params, "uri");
    struct err err;
    if (!uri || strlen(uri) > MCP_URI_MAX)
        return refuse(s, message, stream, MCP_PARAMS, "params.uri must be a uri");
    struct subscription **at = subscribed(s, uri);
    if (on && !*at && s->subscription_count == MCP_SUBSCRIPTIONS_MAX)
        return refuse(s, message, stream, MCP_BUSY, "this session has 256 subscriptions already");
    if (on && !*at) {
        if (s->backend->subscribe(s->backend_arg, uri, true, &err) < 0)
            return refuse(s, message, stream,
                          err.code == ERR_NOT_FOUND ? MCP_NO_RESOURCE : MCP_PARAMS, err.text);
        subscription_add(s, uri);
    } else if (!on && *at) {
        (void)s->backend->subscribe(s->backend_arg, uri, false, &err);
        subscription_drop(s, at);
    }
    answer_now(s, message, stream, NULL);
    return MCP_ASKED;
}

static enum mcp_receipt do_subscribe(struct mcp_session *s, const json_t *message,
                                     const json_t *params, void *stream) {
    return change_subscription(s, message, params, stream, true);
}

static enum mcp_receipt do_unsubscribe(struct mcp_session *s, const json_t *message,
                                       const json_t *params, void *stream) {
    return change_subscription(s, message, params, stream, false);
}

/* ---- methods that the backend answers ---- */

static enum mcp_receipt pass_on(struct mcp_session *s, const json_t *message, const json_t *params,
                                void *stream, enum mcp_verb verb) {
    if (s->request_count == MCP_REQUESTS_MAX)
        return refuse(s, message, stream, MCP_BUSY,
                      "64 requests of this session are under way: wait for one of them");
    struct mcp_request *r = calloc(1, sizeof(*r));
    if (!r)
        abort();
    *r = (struct mcp_request){.session = s,
                              .verb = verb,
                              .params = params,
                              .stream = stream,
                              .message = json_incref((json_t *)message),
                              .next = s->requests,
                              .at = &s->requests};
    if (r->next)
        r->next->at = &r->next;
    s->requests = r;
    s->request_count++;
    s->backend->handle(s->backend_arg, r);
    return MCP_ASKED;
}

static enum mcp_receipt do_call(struct mcp_session *s, const json_t *message, const json_t *params,
                                void *stream) {
    const json_t *arguments = json_object_get(params, "arguments");
    if (!member(params, "name"))
        return refuse(s, message, stream, MCP_PARAMS, "params.name must be the name of a tool");
    if (arguments && !json_is_object(arguments))
        return refuse(s, message, stream, MCP_PARAMS, "params.arguments must be an object");
    return pass_on(s, message, params, stream, MCP_CALL);
}

static enum mcp_receipt do_read(struct mcp_session *s, const json_t *message, const json_t *params,
                                void *stream) {
    const char *uri = member(params, "uri");
    if (!uri || strlen(uri) > MCP_URI_MAX)
        return refuse(s, message, stream, MCP_PARAMS, "params.uri must be a uri");
    return pass_on(s, message, params, stream, MCP_READ);
}

static enum mcp_receipt do_prompt(struct mcp_session *s, const json_t *message,
                                  const json_t *params, void *stream) {
    if (!member(params, "name"))
        return refuse(s, message, stream, MCP_PARAMS, "params.name must be the name of a prompt");
    return pass_on(s, message, params, stream, MCP_PROMPT);
}

static enum mcp_receipt do_complete(struct mcp_session *s, const json_t *message,
                                    const json_t *params, void *stream) {
    const json_t *argument = json_object_get(params, "argument");
    if (!member(json_object_get(params, "ref"), "type") || !member(argument, "name") ||
        !member(argument, "value"))
        return refuse(s, message, stream, MCP_PARAMS,
                      "params.ref and params.argument (with name and value) are needed");
    return pass_on(s, message, params, stream, MCP_COMPLETE);
}

static const struct {
    const char *name;
    enum mcp_receipt (*answer)(struct mcp_session *s, const json_t *message, const json_t *params,
                               void *stream);
    bool first; /* may come before initialize */
} methods[] = {
    {"initialize", do_initialize, true},
    {"ping", do_ping, true},
    {"tools/call", do_call, false},
    {"tools/list", do_tools, false},
    {"resources/list", do_resources, false},
    {"resources/templates/list", do_templates, false},
    {"resources/read", do_read, false},
    {"resources/subscribe", do_subscribe, false},
    {"resources/unsubscribe", do_unsubscribe, false},
    {"prompts/list", do_prompts, false},
    {"prompts/get", do_prompt, false},
    {"logging/setLevel", do_level, false},
    {"completion/complete", do_complete, false},
};

/* ---- messages in ---- */

static bool same_id(const json_t *a, const json_t *b) {
    return a && b && json_equal(a, b);
}

/* The one notification that means something to us. */
static void take_cancelled(struct mcp_session *s, const json_t *params) {
    const json_t *id = json_object_get(params, "requestId");
    for (struct mcp_request *r = s->requests; r; r = r->next)
        if (same_id(id_of(r->message), id)) {
            void *stream = r->stream;
            request_cancel(r);
            s->wire.send(s->wire.arg, stream, NULL, 0, true);
            return;
        }
}

static enum mcp_receipt take_request(struct mcp_session *s, const json_t *message,
                                     const char *method, const json_t *params, void *stream) {
    char text[160];
    if (!id_of(message))
        return refuse(s, NULL, stream, MCP_INVALID, "an id is a text or a whole number");
    for (struct mcp_request *r = s->requests; r; r = r->next)
        if (same_id(id_of(r->message), id_of(message)))
            return refuse(s, message, stream, MCP_INVALID,
                          "a request with this id is still under way");
    for (size_t i = 0; i < sizeof(methods) / sizeof(*methods); i++) {
        if (strcmp(methods[i].name, method) != 0)
            continue;
        if (!methods[i].first && !s->greeted)
            return refuse(s, message, stream, MCP_INVALID, "initialize comes first");
        return methods[i].answer(s, message, params, stream);
    }
    snprintf(text, sizeof(text), "there is no method '%.100s'", method);
    return refuse(s, message, stream, MCP_NO_METHOD, text);
}

static enum mcp_receipt take(struct mcp_session *s, json_t *message, void *stream) {
    const char *method = member(message, "method");
    const json_t *version = json_object_get(message, "jsonrpc");
    json_t *params = json_object_get(message, "params");
    if (!json_is_string(version) || strcmp(json_string_value(version), "2.0") != 0)
        return refuse(s, message, stream, MCP_INVALID, "jsonrpc must be \"2.0\"");
    if (!method) {
        bool answer = json_object_get(message, "result") || json_object_get(message, "error");
        if (!answer || !json_object_get(message, "id"))
            return refuse(s, message, stream, MCP_INVALID, "a message needs a method, or a result");
        take_reply(s, message);
        return MCP_TAKEN;
    }
    if (params && !json_is_object(params))
        return refuse(s, message, stream, MCP_INVALID, "params must be an object");
    if (json_object_get(message, "id"))
        return take_request(s, message, method, params, stream);
    if (strcmp(method, "notifications/cancelled") == 0)
        take_cancelled(s, params);
    return MCP_TAKEN;
}

enum mcp_receipt mcp_take(struct mcp_session *s, json_t *message, void *stream) {
    enum mcp_receipt r = take(s, message, stream);
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
        snprintf(text, sizeof(text), "the message is empty");
    else if (!message)
        snprintf(text, sizeof(text), "not JSON: line %d column %d: %s", why.line, why.column,
                 why.text);
    else
        snprintf(text, sizeof(text), "a message is one object: batches are not served");
    *ret_error = mcp_error_text(NULL, message ? MCP_INVALID : MCP_PARSE, text, NULL);
    json_decref(message);
    return NULL;
}

bool mcp_is_initialize(const json_t *message) {
    const char *method = member(message, "method");
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
    return "{\"supported\":[\"" MCP_VERSION_NEWEST "\",\"" MCP_VERSION_OLDEST "\"]}";
}

/* ---- life ---- */

struct mcp_session *mcp_session_new(const struct mcp_backend *backend, void *backend_arg,
                                    const struct mcp_wire *wire) {
    struct mcp_session *s = calloc(1, sizeof(*s));
    if (!s)
        abort();
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
        subscription_drop(s, &s->subscriptions);
    free(s);
}
