/*
 * carrel-mcp-fixture: serves the tools, resources and prompts that the official conformance suite
 * expects, with our protocol and transport. It has no machine, no daemon and no permissions.
 */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/parse.h"
#include "io/http_origin.h"
#include "mcp/http.h"

/* A red pixel, and a WAVE file without a sample. */
#define PNG                                                                                        \
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJg" \
    "gg=="
#define WAV "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA=="

#define TEXT(t) "{\"type\":\"text\",\"text\":\"" t "\"}"
#define IMAGE "{\"type\":\"image\",\"data\":\"" PNG "\",\"mimeType\":\"image/png\"}"
#define EMBEDDED(uri)                                                                       \
    "{\"type\":\"resource\",\"resource\":{\"uri\":\"" uri "\",\"mimeType\":\"text/plain\"," \
    "\"text\":\"an embedded resource\"}}"
#define CONTENT(blocks) "{\"content\":[" blocks "]}"
#define NO_ARGUMENTS "{\"type\":\"object\",\"properties\":{}}"
#define ONE_TEXT(name)                                                          \
    "{\"type\":\"object\",\"properties\":{\"" name "\":{\"type\":\"string\"}}," \
    "\"required\":[\"" name "\"]}"

static struct loop *loop;

/* ---- tools ---- */

/* A call that reports progress: n steps, 50 ms apart. */
struct slow {
    struct mcp_request *request;
    struct loop_timer *timer;
    unsigned step;
    void (*tick)(struct slow *s);
};

static void slow_free(struct slow *s) {
    s->request->user = NULL;
    loop_timer_free(s->timer);
    free(s);
}

static void slow_tick(void *arg) {
    struct slow *s = arg;
    s->step++;
    s->tick(s);
}

static void slow_start(struct mcp_request *r, void (*tick)(struct slow *s)) {
    struct slow *s = xnew(struct slow);
    *s = (struct slow){.request = r, .tick = tick};
    s->timer = loop_timer_new(loop, slow_tick, s);
    r->user = s;
    loop_timer_start(s->timer, 50, 50);
    tick(s);
}

static void fixture_answer(struct mcp_request *r, const char *result) {
    mcp_answer(r, result, strlen(result));
}

static void slow_done(struct slow *s, const char *result) {
    struct mcp_request *r = s->request;
    slow_free(s);
    fixture_answer(r, result);
}

static void tick_log(struct slow *s) {
    static const char *const said[] = {"\"started\"", "\"working\"", "\"finished\""};
    if (s->step < 3)
        mcp_log(s->request->session, s->request, MCP_INFO, "fixture", said[s->step]);
    else
        slow_done(s, CONTENT(TEXT("logged")));
}

static void tick_progress(struct slow *s) {
    if (s->step < 3)
        mcp_progress(s->request, s->step * 50, 100, "on its way");
    else
        slow_done(s, CONTENT(TEXT("progressed")));
}

static void tick_reconnect(struct slow *s) {
    if (s->step == 0)
        mcp_http_hang_up(s->request);
    else if (s->step == 4)
        slow_done(s, CONTENT(TEXT("reconnected")));
}

static void call_log(struct mcp_request *r) {
    slow_start(r, tick_log);
}

static void call_progress(struct mcp_request *r) {
    slow_start(r, tick_progress);
}

static void call_reconnect(struct mcp_request *r) {
    slow_start(r, tick_reconnect);
}

static void reply_came(void *arg, const json_t *result) {
    struct mcp_request *r = arg;
    char *json DEFER_FREE = result ? json_dumps(result, JSON_COMPACT) : NULL;
    struct buf text DEFER(buf_done) = BUF(1 << 20);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_array(&j, "content");
    jot_object(&j, NULL);
    jot_string(&j, "type", "text");
    jot_string(&j, "text", json ? json : "the client refused");
    jot_end(&j, '}');
    jot_end(&j, ']');
    jot_bool(&j, "isError", !json);
    jot_end(&j, '}');
    r->user = NULL;
    fixture_answer(r, text.data);
}

static void ask_if(struct mcp_request *r, enum mcp_ability ability, const char *method,
                   const char *params) {
    if (mcp_abilities(r) & ability) {
        r->user = r; /* a question is open */
        mcp_ask(r, method, params, reply_came, r);
    } else {
        fixture_answer(r,
                       "{\"content\":[" TEXT("this client cannot be asked") "],\"isError\":true}");
    }
}

static const char *argument(const struct mcp_request *r, const char *name) {
    const char *value =
        json_string_value(json_object_get(json_object_get(r->params, "arguments"), name));
    return value ? value : "";
}

/* An object with one message of the user, whose content is between these two. */
static struct jot message_begin(struct buf *to) {
    struct jot j = JOT(to);
    jot_object(&j, NULL);
    jot_array(&j, "messages");
    jot_object(&j, NULL);
    jot_string(&j, "role", "user");
    jot_object(&j, "content");
    return j;
}

static void message_end(struct jot *j) {
    jot_end(j, '}');
    jot_end(j, '}');
    jot_end(j, ']');
}

static void jot_text(struct jot *j, const char *text) {
    jot_string(j, "type", "text");
    jot_string(j, "text", text);
}

static void call_sample(struct mcp_request *r) {
    struct buf text DEFER(buf_done) = BUF(1 << 20);
    struct jot j = message_begin(&text);
    jot_text(&j, argument(r, "prompt"));
    message_end(&j);
    jot_u64(&j, "maxTokens", 100);
    jot_end(&j, '}');
    ask_if(r, MCP_CAN_SAMPLE, "sampling/createMessage", text.data);
}

static void elicit(struct mcp_request *r, const char *message, const char *schema) {
    struct buf text DEFER(buf_done) = BUF(1 << 20);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "message", message);
    jot_raw(&j, "requestedSchema", schema);
    jot_end(&j, '}');
    ask_if(r, MCP_CAN_ELICIT, "elicitation/create", text.data);
}

static void call_elicit(struct mcp_request *r) {
    elicit(r, argument(r, "message"),
           "{\"type\":\"object\",\"properties\":{\"username\":{\"type\":\"string\",\"description\":"
           "\"name\"},\"email\":{\"type\":\"string\",\"description\":\"address\"}},\"required\":["
           "\"username\",\"email\"]}");
}

static void call_defaults(struct mcp_request *r) {
    elicit(r, "Please look at the defaults",
           "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"default\":\"John "
           "Doe\"},\"age\":{\"type\":\"integer\",\"default\":30},\"score\":{\"type\":\"number\","
           "\"default\":95.5},\"status\":{\"type\":\"string\",\"enum\":[\"active\",\"inactive\","
           "\"pending\"],\"default\":\"active\"},\"verified\":{\"type\":\"boolean\",\"default\":"
           "true}},\"required\":[]}");
}

#define TITLED "[{\"const\":\"a\",\"title\":\"First\"},{\"const\":\"b\",\"title\":\"Second\"}]"

static void call_enums(struct mcp_request *r) {
    elicit(
        r, "Please choose",
        "{\"type\":\"object\",\"properties\":{\"untitledSingle\":{\"type\":\"string\",\"enum\":["
        "\"a\",\"b\"]},\"titledSingle\":{\"type\":\"string\",\"oneOf\":" TITLED
        "},\"legacyEnum\":{\"type\":\"string\",\"enum\":[\"a\",\"b\"],\"enumNames\":[\"First\","
        "\"Second\"]},\"untitledMulti\":{\"type\":\"array\",\"items\":{\"type\":\"string\","
        "\"enum\":[\"a\",\"b\"]}},\"titledMulti\":{\"type\":\"array\",\"items\":{\"anyOf\":" TITLED
        "}}},\"required\":[]}");
}

/* ---- questions of version 2026-07-28: the client repeats its request with the answers ---- */

#define QUESTION(name, method, params) \
    "\"" name "\":{\"method\":\"" method "\",\"params\":" params "}"
#define ASK_TEXT(name, field)                                                                  \
    QUESTION(                                                                                  \
        name, "elicitation/create",                                                            \
        "{\"message\":\"Which one?\",\"requestedSchema\":{\"type\":\"object\",\"properties\":" \
        "{\"" field "\":{\"type\":\"string\"}},\"required\":[\"" field "\"]}}")
#define ASK_MODEL(name)                                                                           \
    QUESTION(                                                                                     \
        name, "sampling/createMessage",                                                           \
        "{\"messages\":[{\"role\":\"user\",\"content\":{\"type\":\"text\",\"text\":\"Hello\"}}]," \
        "\"maxTokens\":50}")
#define ASK_ROOTS(name) QUESTION(name, "roots/list", "{}")
#define ROUND "test_input_required_result_"

/* Rows of one name are its rounds. state: what the client must send back; NULL: nothing. */
static const struct round {
    const char *name, *state, *questions;
    const char *answers[3];
} rounds[] = {
    {ROUND "elicitation", NULL, "{" ASK_TEXT("user_name", "name") "}", {"user_name"}},
    {"test_streaming_elicitation", NULL, "{" ASK_TEXT("user_name", "name") "}", {"user_name"}},
    {ROUND "sampling", NULL, "{" ASK_MODEL("capital_question") "}", {"capital_question"}},
    {ROUND "list_roots", NULL, "{" ASK_ROOTS("client_roots") "}", {"client_roots"}},
    {ROUND "request_state", "once", "{" ASK_TEXT("confirm", "ok") "}", {"confirm"}},
    {ROUND "multiple_inputs",
     "many",
     "{" ASK_TEXT("user_name", "name") "," ASK_MODEL("greeting") "," ASK_ROOTS("client_roots") "}",
     {"user_name", "greeting", "client_roots"}},
    {ROUND "multi_round", "first", "{" ASK_TEXT("step1", "name") "}", {"step1"}},
    {ROUND "multi_round", "second", "{" ASK_TEXT("step2", "color") "}", {"step2"}},
    {ROUND "tampered_state", "sealed", "{" ASK_TEXT("confirm", "ok") "}", {"confirm"}},
    {ROUND "prompt", NULL, "{" ASK_TEXT("user_context", "context") "}", {"user_context"}},
};
enum { ROUNDS = sizeof(rounds) / sizeof(*rounds) };

static bool is_answered(const struct mcp_request *r, const struct round *of) {
    for (size_t i = 0; i < 3 && of->answers[i]; i++)
        if (!mcp_input(r, of->answers[i]))
            return false;
    return true;
}

static const struct round *round_find(const char *name, const char *state) {
    for (size_t i = 0; i < ROUNDS; i++)
        if (strcmp(rounds[i].name, name) == 0 &&
            (!state || (rounds[i].state && strcmp(rounds[i].state, state) == 0)))
            return &rounds[i];
    return NULL;
}

/* Asks the next questions. False: all are answered, and the request can be answered. */
static bool ask_round(struct mcp_request *r) {
    const char *name = json_string_value(json_object_get(r->params, "name"));
    const char *state = json_string_value(json_object_get(r->params, "requestState"));
    const struct round *at = round_find(name, state);
    if (!at) {
        mcp_refuse(r, MCP_PARAMS, "params.requestState was not issued by this server", NULL);
        return true;
    }
    if (is_answered(r, at) && (state || !at->state)) {
        at++;
        if (at == rounds + ROUNDS || strcmp(at->name, name) != 0)
            return false;
    }
    mcp_need_input(r, at->questions, at->state);
    return true;
}

static void call_round(struct mcp_request *r) {
    if (!ask_round(r))
        fixture_answer(r, CONTENT(TEXT("all questions are answered")));
}

/* Asks only what the client can answer. */
static void call_able(struct mcp_request *r) {
    if (mcp_abilities(r) & MCP_CAN_SAMPLE)
        mcp_need_input(r, "{" ASK_MODEL("greeting") "}", NULL);
    else if (mcp_abilities(r) & MCP_CAN_ELICIT)
        mcp_need_input(r, "{" ASK_TEXT("user_name", "name") "}", NULL);
    else
        fixture_answer(r, CONTENT(TEXT("this client cannot be asked")));
}

static void call_unable(struct mcp_request *r) {
    if (mcp_abilities(r) & MCP_CAN_SAMPLE)
        fixture_answer(r, CONTENT(TEXT("the client can sample")));
    else
        mcp_refuse(r, MCP_NO_ABILITY, "the client must be able to sample",
                   "{\"requiredCapabilities\":{\"sampling\":{}}}");
}

static const struct {
    const char *name, *description, *schema;
    const char *result; /* or: */
    void (*call)(struct mcp_request *r);
} tools[] = {
    {ROUND "elicitation", "Asks by its result.", NO_ARGUMENTS, NULL, call_round},
    {"test_streaming_elicitation", "Asks by its result.", NO_ARGUMENTS, NULL, call_round},
    {ROUND "sampling", "Asks the model by its result.", NO_ARGUMENTS, NULL, call_round},
    {ROUND "list_roots", "Asks for the roots.", NO_ARGUMENTS, NULL, call_round},
    {ROUND "request_state", "Asks with a state.", NO_ARGUMENTS, NULL, call_round},
    {ROUND "multiple_inputs", "Asks several questions.", NO_ARGUMENTS, NULL, call_round},
    {ROUND "multi_round", "Asks twice.", NO_ARGUMENTS, NULL, call_round},
    {ROUND "tampered_state", "Checks its state.", NO_ARGUMENTS, NULL, call_round},
    {ROUND "capabilities", "Asks what the client can answer.", NO_ARGUMENTS, NULL, call_able},
    {"test_missing_capability", "Needs a capability.", NO_ARGUMENTS, NULL, call_unable},
    {"test_logging_tool", "Logs if it may.", NO_ARGUMENTS, NULL, call_log},
    {"test_simple_text", "Answers with a text.", NO_ARGUMENTS,
     CONTENT(TEXT("This is a simple text response for testing.")), NULL},
    {"test_image_content", "Answers with an image.", NO_ARGUMENTS, CONTENT(IMAGE), NULL},
    {"test_audio_content", "Answers with a sound.", NO_ARGUMENTS,
     CONTENT("{\"type\":\"audio\",\"data\":\"" WAV "\",\"mimeType\":\"audio/wav\"}"), NULL},
    {"test_embedded_resource", "Answers with a resource.", NO_ARGUMENTS,
     CONTENT(EMBEDDED("test://embedded-resource")), NULL},
    {"test_multiple_content_types", "Answers with several blocks.", NO_ARGUMENTS,
     CONTENT(TEXT("a text") "," IMAGE "," EMBEDDED("test://mixed-content-resource")), NULL},
    {"test_tool_with_logging", "Logs while it works.", NO_ARGUMENTS, NULL, call_log},
    {"test_error_handling", "Fails.", NO_ARGUMENTS,
     "{\"content\":[" TEXT(
         "This tool intentionally returns an error for testing") "],\"isError\":true}",
     NULL},
    {"test_tool_with_progress", "Tells how far it is.", NO_ARGUMENTS, NULL, call_progress},
    {"test_sampling", "Asks the client's model.", ONE_TEXT("prompt"), NULL, call_sample},
    {"test_elicitation", "Asks the client's user.", ONE_TEXT("message"), NULL, call_elicit},
    {"test_elicitation_sep1034_defaults", "Asks with defaults.", NO_ARGUMENTS, NULL, call_defaults},
    {"test_elicitation_sep1330_enums", "Asks with choices.", NO_ARGUMENTS, NULL, call_enums},
    {"test_reconnection", "Closes its stream before it answers.", NO_ARGUMENTS, NULL,
     call_reconnect},
    {"json_schema_2020_12_tool", "Has a schema with definitions.",
     "{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"type\":\"object\",\"$defs\":{"
     "\"address\":{\"type\":\"object\",\"properties\":{\"street\":{\"type\":\"string\"},\"city\":{"
     "\"type\":\"string\"}}}},\"properties\":{\"name\":{\"type\":\"string\"},\"address\":{\"$ref\":"
     "\"#/$defs/address\"}},\"additionalProperties\":false}",
     CONTENT(TEXT("understood")), NULL},
};
enum { TOOLS = sizeof(tools) / sizeof(*tools) };

/* ---- resources and prompts ---- */

static const struct {
    const char *uri, *name, *type, *member, *value;
} resources[] = {
    {"test://static-text", "static text", "text/plain", "text", "a static text"},
    {"test://static-binary", "static bytes", "image/png", "blob", PNG},
    {"test://watched-resource", "watched text", "text/plain", "text", "a watched text"},
};
enum { RESOURCES = sizeof(resources) / sizeof(*resources) };

#define MESSAGE(block) "{\"messages\":[{\"role\":\"user\",\"content\":" block "}]}"

static const struct {
    const char *name, *description, *arguments, *result;
} prompts[] = {
    {"test_simple_prompt", "A plain prompt.", "[]",
     MESSAGE(TEXT("This is a simple prompt for testing."))},
    {"test_prompt_with_arguments", "A prompt with two arguments.",
     "[{\"name\":\"arg1\",\"required\":true},{\"name\":\"arg2\",\"required\":true}]", NULL},
    {"test_prompt_with_embedded_resource", "A prompt with a resource.",
     "[{\"name\":\"resourceUri\",\"required\":true}]", NULL},
    {"test_prompt_with_image", "A prompt with an image.", "[]", MESSAGE(IMAGE)},
    {ROUND "prompt", "A prompt that asks first.", "[]", MESSAGE(TEXT("answered"))},
};
enum { PROMPTS = sizeof(prompts) / sizeof(*prompts) };

static void put_tool(struct jot *j, size_t i) {
    jot_object(j, NULL);
    jot_string(j, "name", tools[i].name);
    jot_string(j, "description", tools[i].description);
    jot_raw(j, "inputSchema", tools[i].schema);
    jot_end(j, '}');
}

static void put_resource(struct jot *j, size_t i) {
    jot_object(j, NULL);
    jot_string(j, "uri", resources[i].uri);
    jot_string(j, "name", resources[i].name);
    jot_string(j, "mimeType", resources[i].type);
    jot_end(j, '}');
}

static void put_template(struct jot *j, size_t i) {
    (void)i;
    jot_raw(j, NULL,
            "{\"uriTemplate\":\"test://template/{id}/data\",\"name\":\"template\",\"mimeType\":"
            "\"application/json\"}");
}

static void put_prompt(struct jot *j, size_t i) {
    jot_object(j, NULL);
    jot_string(j, "name", prompts[i].name);
    jot_string(j, "description", prompts[i].description);
    jot_raw(j, "arguments", prompts[i].arguments);
    jot_end(j, '}');
}

static bool fixture_list(void *arg, enum mcp_list what, size_t from, size_t max, struct jot *j) {
    static const struct {
        size_t count;
        void (*put)(struct jot *j, size_t i);
    } lists[] = {
        {TOOLS, put_tool}, {RESOURCES, put_resource}, {1, put_template}, {PROMPTS, put_prompt}};
    (void)arg;
    size_t end = lists[what].count < from + max ? lists[what].count : from + max;
    for (size_t i = from; i < end; i++)
        lists[what].put(j, i);
    return end < lists[what].count && end >= from;
}

static void call_tool(struct mcp_request *r) {
    const char *name = json_string_value(json_object_get(r->params, "name"));
    for (size_t i = 0; i < TOOLS; i++)
        if (strcmp(tools[i].name, name) == 0) {
            if (tools[i].call)
                tools[i].call(r);
            else
                fixture_answer(r, tools[i].result);
            return;
        }
    mcp_refuse(r, MCP_PARAMS, "there is no such tool", NULL);
}

static void give(struct mcp_request *r, const char *uri, const char *type, const char *name,
                 const char *value) {
    struct buf text DEFER(buf_done) = BUF(1 << 20);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_array(&j, "contents");
    jot_object(&j, NULL);
    jot_string(&j, "uri", uri);
    jot_string(&j, "mimeType", type);
    jot_string(&j, name, value);
    jot_end(&j, '}');
    jot_end(&j, ']');
    jot_end(&j, '}');
    fixture_answer(r, text.data);
}

static void read_resource(struct mcp_request *r) {
    const char *uri = json_string_value(json_object_get(r->params, "uri"));
    char id[64], text[128];
    for (size_t i = 0; i < RESOURCES; i++)
        if (strcmp(resources[i].uri, uri) == 0) {
            give(r, uri, resources[i].type, resources[i].member, resources[i].value);
            return;
        }
    if (sscanf(uri, "test://template/%60[A-Za-z0-9]/data", id) == 1) {
        snprintf(text, sizeof(text), "{\"id\":\"%s\",\"data\":\"of %s\"}", id, id);
        give(r, uri, "application/json", "text", text);
        return;
    }
    mcp_refuse(r, MCP_NO_RESOURCE, "there is no such resource", NULL);
}

/* The two prompts that repeat what they were given. */
static void prompt_with(struct mcp_request *r, bool embedded) {
    struct buf text DEFER(buf_done) = BUF(1 << 20), words DEFER(buf_done) = BUF(1 << 20);
    struct jot j = message_begin(&text);
    if (embedded) {
        jot_string(&j, "type", "resource");
        jot_object(&j, "resource");
        jot_string(&j, "uri", argument(r, "resourceUri"));
        jot_string(&j, "mimeType", "text/plain");
        jot_string(&j, "text", "an embedded resource");
        jot_end(&j, '}');
    } else {
        (void)!buf_addf(&words, "arg1='%s', arg2='%s'", argument(r, "arg1"), argument(r, "arg2"));
        jot_text(&j, words.data ? words.data : "");
    }
    message_end(&j);
    jot_end(&j, '}');
    fixture_answer(r, text.data);
}

static void get_prompt(struct mcp_request *r) {
    const char *name = json_string_value(json_object_get(r->params, "name"));
    for (size_t i = 0; i < PROMPTS; i++)
        if (strcmp(prompts[i].name, name) == 0) {
            if (round_find(name, NULL) && ask_round(r))
                return;
            if (prompts[i].result)
                fixture_answer(r, prompts[i].result);
            else
                prompt_with(r, strstr(name, "resource") != NULL);
            return;
        }
    mcp_refuse(r, MCP_PARAMS, "there is no such prompt", NULL);
}

static void handle(void *arg, struct mcp_request *r) {
    (void)arg;
    switch (r->verb) {
    case MCP_CALL:
        call_tool(r);
        break;
    case MCP_READ:
        read_resource(r);
        break;
    case MCP_PROMPT:
        get_prompt(r);
        break;
    case MCP_COMPLETE:
        fixture_answer(r, "{\"completion\":{\"values\":[],\"total\":0,\"hasMore\":false}}");
        break;
    case MCP_LIST: /* never comes: the fixture has no must_wait() */
        mcp_answer_list(r);
        break;
    }
}

static void cancel(void *arg, struct mcp_request *r) {
    (void)arg;
    if (r->user && r->user != r)
        slow_free(r->user);
    fixture_answer(r, "{}");
}

static int subscribe(void *arg, const char *uri, bool on, struct err *err) {
    (void)arg;
    (void)on;
    for (size_t i = 0; i < RESOURCES; i++)
        if (strcmp(resources[i].uri, uri) == 0)
            return 0;
    return err_set(err, ERR_NOT_FOUND, "there is no such resource");
}

static const struct mcp_backend backend = {
    .name = "carrel-fixture",
    .title = "Carrel's conformance fixture",
    .version = CARREL_VERSION,
    .list = fixture_list,
    .handle = handle,
    .cancel = cancel,
    .subscribe = subscribe,
};

/* ---- serving ---- */

static void *open_session(void *arg, const void *who, const char *id, struct err *err) {
    (void)who;
    (void)id;
    (void)err;
    return arg;
}

static void session_opened(void *backend_arg, struct mcp_session *s) {
    (void)backend_arg;
    (void)s;
}

static void session_closed(void *backend_arg) {
    (void)backend_arg;
}

static void on_request(struct http_exchange *x, void *arg) {
    struct err err;
    if (http_check_origin(x, &err) < 0)
        http_reply(x, 403, NULL, err.text, strlen(err.text));
    else if (http_text_is(x->head->path, "/mcp"))
        mcp_http_take(*(struct mcp_http **)arg, x, "anybody", "");
    else
        http_reply(x, 404, NULL, NULL, 0);
}

static void on_signal(void *arg, int signum) {
    (void)signum;
    loop_stop(arg);
}

static int listen_at(struct http_server *server, const char *where, struct err *err) {
    char host[64];
    uint64_t port;
    uint16_t bound;
    const char *colon = strrchr(where, ':');
    size_t n = colon ? (size_t)(colon - where) : 0;
    if (!n || n >= sizeof(host) || parse_u64(colon + 1, 0, 65535, &port, NULL) < 0)
        return err_set(err, ERR_INVALID, "'%s' is not ADDRESS:PORT", where);
    snprintf(host, sizeof(host), "%.*s", (int)n, where);
    if (strcmp(host, "127.0.0.1") != 0 && strcmp(host, "localhost") != 0)
        return err_set(err, ERR_DENIED, "a fixture listens on 127.0.0.1 only");
    if (http_listen_tcp(server, "127.0.0.1", (uint16_t)port, &bound, err) < 0)
        return -1;
    printf("http://127.0.0.1:%u/mcp\n", bound);
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv) {
    struct err err;
    struct mcp_http *http = NULL;
    signal(SIGPIPE, SIG_IGN);
    loop = loop_new(&err);
    if (!loop)
        return 1;
    const struct http_server_config config = {.on_request = on_request, .arg = &http};
    struct http_server *server = http_server_new(loop, &config);
    http = mcp_http_new(&(struct mcp_http_config){.loop = loop,
                                                  .backend = &backend,
                                                  .arg = loop,
                                                  .open = open_session,
                                                  .opened = session_opened,
                                                  .close = session_closed});
    if (argc != 2 || loop_on_signal(loop, SIGTERM, on_signal, loop, &err) < 0 ||
        loop_on_signal(loop, SIGINT, on_signal, loop, &err) < 0 ||
        listen_at(server, argv[1], &err) < 0) {
        fprintf(stderr, "carrel-mcp-fixture: %s\n", argc == 2 ? err.text : "usage: ADDRESS:PORT");
        return 1;
    }
    loop_run(loop);
    mcp_http_free(http);
    http_server_free(server);
    loop_free(loop);
    return 0;
}
