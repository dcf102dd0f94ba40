/*
 * The methods of the MCP protocol: a session answers some itself and passes the others to its
 * backend.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/parse.h"
#include "mcp/mcp.h"
#include "mcp/mcp_inner.h"

/* Supported protocol versions, newest first. */
static const char *const versions[] = {MCP_VERSION_NEWEST, MCP_VERSION_OLDEST};
enum { VERSIONS = sizeof(versions) / sizeof(*versions) };

enum { LEVELS = sizeof(mcp_level_names) / sizeof(*mcp_level_names) };

/* ---- methods that the session answers itself ---- */

void mcp_answer_now(struct mcp_session *s, const json_t *message, void *stream,
                    const struct buf *result) {
    struct buf out DEFER(buf_done) = BUF(MCP_MESSAGE_MAX);
    struct jot j = JOT(&out);
    mcp_begin_message(&j);
    mcp_put_id(&j, "id", mcp_id_of(message));
    mcp_put_result(&j, result ? result->data : "{}", result ? result->len : 2,
                   mcp_is_stateless(message) ? "\"resultType\":\"complete\"," MCP_UNCACHED : "");
    jot_end(&j, '}');
    mcp_send_text(s, stream, &j, true);
}

static enum mcp_receipt do_ping(struct mcp_session *s, const json_t *message, const json_t *params,
                                void *stream) {
    (void)params;
    mcp_answer_now(s, message, stream, NULL);
    return MCP_ASKED;
}

/*
 * Chooses the protocol version: that of the client if supported. An older client gets the oldest
 * supported version, any other client the newest.
 */
static const char *agree(const char *wanted) {
    for (size_t i = 0; i < VERSIONS; i++)
        if (strcmp(versions[i], wanted) == 0)
            return versions[i];
    return strcmp(wanted, MCP_VERSION_OLDEST) < 0 ? MCP_VERSION_OLDEST : MCP_VERSION_NEWEST;
}

void mcp_put_capabilities(struct jot *j, bool subscribe) {
    jot_object(j, "capabilities");
    jot_raw(j, "tools", "{}");
    jot_raw(j, "resources", subscribe ? "{\"subscribe\":true}" : "{}");
    jot_raw(j, "prompts", "{}");
    jot_raw(j, "logging", "{}");
    jot_raw(j, "completions", "{}");
    jot_end(j, '}');
}

void mcp_put_server(struct jot *j, const struct mcp_backend *b, const char *name) {
    jot_object(j, name);
    jot_string(j, "name", b->name);
    jot_string(j, "title", b->title);
    jot_string(j, "version", b->version);
    jot_end(j, '}');
}

void mcp_put_instructions(const struct mcp_session *s, struct jot *j) {
    const struct mcp_backend *b = s->backend;
    struct buf text DEFER(buf_done) = BUF(40 << 10);
    if (!b->instructions || !buf_addf(&text, "%s", b->instructions))
        return;
    if (b->describe)
        b->describe(s->backend_arg, &text);
    jot_string(j, "instructions", text.data);
}

static enum mcp_receipt do_initialize(struct mcp_session *s, const json_t *message,
                                      const json_t *params, void *stream) {
    const struct mcp_backend *b = s->backend;
    struct buf out DEFER(buf_done) = BUF(64 << 10);
    struct jot j = JOT(&out);
    const char *wanted = mcp_member(params, "protocolVersion");
    const json_t *can = json_object_get(params, "capabilities");
    const char *name = mcp_member(json_object_get(params, "clientInfo"), "name");
    if (s->greeted)
        return mcp_refuse_message(s, message, stream, MCP_INVALID,
                                  "this MCP session is already initialized");
    if (!wanted)
        return mcp_refuse_message(s, message, stream, MCP_PARAMS,
                                  "params.protocolVersion must be a string");
    s->abilities = mcp_abilities_in(can);
    snprintf(s->client, sizeof(s->client), "%s", name ? name : "");
    jot_object(&j, NULL);
    jot_string(&j, "protocolVersion", agree(wanted));
    mcp_put_capabilities(&j, true);
    mcp_put_server(&j, b, "serverInfo");
    mcp_put_instructions(s, &j);
    jot_end(&j, '}');
    s->greeted = true;
    mcp_answer_now(s, message, stream, &out);
    return MCP_ASKED;
}

static enum mcp_receipt do_level(struct mcp_session *s, const json_t *message, const json_t *params,
                                 void *stream) {
    const char *name = mcp_member(params, "level");
    for (size_t i = 0; name && i < LEVELS; i++)
        if (strcmp(mcp_level_names[i], name) == 0) {
            s->level = (enum mcp_level)i;
            mcp_answer_now(s, message, stream, NULL);
            return MCP_ASKED;
        }
    return mcp_refuse_message(
        s, message, stream, MCP_PARAMS,
        "params.level must be one of debug info notice warning error critical alert "
        "emergency");
}

/* A cursor is the index of the next page; it is opaque to clients. */
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

/* Writes a page of a list. False: it is too large. */
static bool list_write(struct mcp_session *s, enum mcp_list what, size_t from, struct buf *out) {
    static const char *const names[] = {"tools", "resources", "resourceTemplates", "prompts"};
    struct jot j = JOT(out);
    char next[24];
    jot_object(&j, NULL);
    jot_array(&j, names[what]);
    bool more = s->backend->list(s->backend_arg, what, from, MCP_PAGE, &j);
    jot_end(&j, ']');
    snprintf(next, sizeof(next), "p%zu", from + MCP_PAGE);
    if (more)
        jot_string(&j, "nextCursor", next);
    jot_end(&j, '}');
    return !j.failed;
}

static enum mcp_receipt do_list(struct mcp_session *s, const json_t *message, const json_t *params,
                                void *stream, enum mcp_list what) {
    struct buf out DEFER(buf_done) = BUF(MCP_MESSAGE_MAX);
    size_t from;
    if (read_cursor(params, &from) < 0)
        return mcp_refuse_message(s, message, stream, MCP_PARAMS,
                                  "params.cursor was not issued by this server");
    if (!list_write(s, what, from, &out))
        return mcp_refuse_message(s, message, stream, MCP_INTERNAL,
                                  "the list is larger than an MCP message may be");
    mcp_answer_now(s, message, stream, &out);
    return MCP_ASKED;
}

void mcp_answer_list(struct mcp_request *r) {
    struct buf out DEFER(buf_done) = BUF(MCP_MESSAGE_MAX);
    size_t from = 0;
    if (!r->session)
        mcp_answer(r, "{}", 2);
    else if (read_cursor(r->params, &from) < 0)
        mcp_refuse(r, MCP_PARAMS, "params.cursor was not issued by this server", NULL);
    else if (list_write(r->session, MCP_TOOLS, from, &out))
        mcp_answer(r, out.data, out.len);
    else
        mcp_refuse(r, MCP_INTERNAL, "the list is larger than an MCP message may be", NULL);
}

static enum mcp_receipt pass_on(struct mcp_session *s, const json_t *message, const json_t *params,
                                void *stream, enum mcp_verb verb);

static enum mcp_receipt do_tools(struct mcp_session *s, const json_t *message, const json_t *params,
                                 void *stream) {
    if (s->backend->must_wait && s->backend->must_wait(s->backend_arg))
        return pass_on(s, message, params, stream, MCP_LIST);
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
    struct subscription *u = xmalloc(sizeof(*u) + n);
    memcpy(u->uri, uri, n);
    u->next = s->subscriptions;
    s->subscriptions = u;
    s->subscription_count++;
}

void mcp_subscription_drop(struct mcp_session *s, struct subscription **at) {
    struct subscription *gone = *at;
    *at = gone->next;
    free(gone);
    s->subscription_count--;
}

static enum mcp_receipt change_subscription(struct mcp_session *s, const json_t *message,
                                            const json_t *params, void *stream, bool on) {
    const char *uri = mcp_member(params, "uri");
    struct err err;
    if (!uri || strlen(uri) > MCP_URI_MAX)
        return mcp_refuse_message(s, message, stream, MCP_PARAMS,
                                  "params.uri must be a string: a URI");
    struct subscription **at = subscribed(s, uri);
    if (on && !*at && s->subscription_count == MCP_SUBSCRIPTIONS_MAX)
        return mcp_refuse_message(s, message, stream, MCP_BUSY,
                                  "this MCP session already has 256 subscriptions");
    if (on && !*at) {
        if (s->backend->subscribe(s->backend_arg, uri, true, &err) < 0)
            return mcp_refuse_message(s, message, stream,
                                      err.code == ERR_NOT_FOUND ? MCP_NO_RESOURCE : MCP_PARAMS,
                                      err.text);
        subscription_add(s, uri);
    } else if (!on && *at) {
        (void)s->backend->subscribe(s->backend_arg, uri, false, &err);
        mcp_subscription_drop(s, at);
    }
    mcp_answer_now(s, message, stream, NULL);
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
        return mcp_refuse_message(
            s, message, stream, MCP_BUSY,
            "64 requests of this MCP session are in progress; wait for one to end");
    struct mcp_request *r = xnew(struct mcp_request);
    *r = (struct mcp_request){.session = s,
                              .verb = verb,
                              .params = params,
                              .stream = stream,
                              .abilities = s->abilities,
                              .message = json_incref((json_t *)message),
                              .next = s->requests,
                              .at = &s->requests};
    if (r->next)
        r->next->at = &r->next;
    s->requests = r;
    s->request_count++;
    if (mcp_is_stateless(message))
        mcp_stateless_request(r);
    s->backend->handle(s->backend_arg, r);
    return MCP_ASKED;
}

static enum mcp_receipt do_call(struct mcp_session *s, const json_t *message, const json_t *params,
                                void *stream) {
    const json_t *arguments = json_object_get(params, "arguments");
    if (!mcp_member(params, "name"))
        return mcp_refuse_message(s, message, stream, MCP_PARAMS,
                                  "params.name must be the name of a tool");
    if (arguments && !json_is_object(arguments))
        return mcp_refuse_message(s, message, stream, MCP_PARAMS,
                                  "params.arguments must be an object");
    return pass_on(s, message, params, stream, MCP_CALL);
}

static enum mcp_receipt do_read(struct mcp_session *s, const json_t *message, const json_t *params,
                                void *stream) {
    const char *uri = mcp_member(params, "uri");
    if (!uri || strlen(uri) > MCP_URI_MAX)
        return mcp_refuse_message(s, message, stream, MCP_PARAMS,
                                  "params.uri must be a string: a URI");
    return pass_on(s, message, params, stream, MCP_READ);
}

static enum mcp_receipt do_prompt(struct mcp_session *s, const json_t *message,
                                  const json_t *params, void *stream) {
    if (!mcp_member(params, "name"))
        return mcp_refuse_message(s, message, stream, MCP_PARAMS,
                                  "params.name must be the name of a prompt");
    return pass_on(s, message, params, stream, MCP_PROMPT);
}

static enum mcp_receipt do_complete(struct mcp_session *s, const json_t *message,
                                    const json_t *params, void *stream) {
    const json_t *argument = json_object_get(params, "argument");
    if (!mcp_member(json_object_get(params, "ref"), "type") || !mcp_member(argument, "name") ||
        !mcp_member(argument, "value"))
        return mcp_refuse_message(
            s, message, stream, MCP_PARAMS,
            "params.ref and params.argument (with name and value) are required");
    return pass_on(s, message, params, stream, MCP_COMPLETE);
}

enum { METHOD_FIRST = 1, METHOD_STATEFUL = 2, METHOD_STATELESS = 4 };
#define METHOD_BOTH (METHOD_STATEFUL | METHOD_STATELESS)

static const struct {
    const char *name;
    mcp_method_fn *answer;
    unsigned flags; /* METHOD_FIRST: the client may call the method before initialize */
} methods[] = {
    {"initialize", do_initialize, METHOD_STATEFUL | METHOD_FIRST},
    {"ping", do_ping, METHOD_STATEFUL | METHOD_FIRST},
    {"tools/call", do_call, METHOD_BOTH},
    {"tools/list", do_tools, METHOD_BOTH},
    {"resources/list", do_resources, METHOD_BOTH},
    {"resources/templates/list", do_templates, METHOD_BOTH},
    {"resources/read", do_read, METHOD_BOTH},
    {"resources/subscribe", do_subscribe, METHOD_STATEFUL},
    {"resources/unsubscribe", do_unsubscribe, METHOD_STATEFUL},
    {"prompts/list", do_prompts, METHOD_BOTH},
    {"prompts/get", do_prompt, METHOD_BOTH},
    {"logging/setLevel", do_level, METHOD_STATEFUL},
    {"completion/complete", do_complete, METHOD_BOTH},
};

mcp_method_fn *mcp_method_find(const char *name, bool stateless, bool *ret_first) {
    unsigned era = stateless ? METHOD_STATELESS : METHOD_STATEFUL;
    for (size_t i = 0; i < sizeof(methods) / sizeof(*methods); i++)
        if (strcmp(methods[i].name, name) == 0 && methods[i].flags & era) {
            *ret_first = methods[i].flags & METHOD_FIRST;
            return methods[i].answer;
        }
    return NULL;
}

enum mcp_receipt mcp_take_request(struct mcp_session *s, const json_t *message, const char *method,
                                  const json_t *params, void *stream) {
    char text[160];
    bool first, stateless = mcp_is_stateless(message);
    if (!mcp_id_of(message))
        return mcp_refuse_message(s, NULL, stream, MCP_INVALID,
                                  "the field id must be a string or an integer");
    /* Stateless clients of one token share a session, so over HTTP their ids may be the same. */
    for (struct mcp_request *r = s->requests; r && !(stateless && stream); r = r->next)
        if (mcp_same_id(mcp_id_of(r->message), mcp_id_of(message)))
            return mcp_refuse_message(s, message, stream, MCP_INVALID,
                                      "a request with this id is still in progress");
    if (stateless)
        return mcp_take_stateless(s, message, method, params, stream);
    mcp_method_fn *answer = mcp_method_find(method, false, &first);
    if (answer && !first && !s->greeted)
        return mcp_refuse_message(s, message, stream, MCP_INVALID,
                                  "the MCP session must be initialized first: send initialize");
    if (answer)
        return answer(s, message, params, stream);
    snprintf(text, sizeof(text), "unknown MCP method '%.100s'", method);
    return mcp_refuse_message(s, message, stream, MCP_NO_METHOD, text);
}
