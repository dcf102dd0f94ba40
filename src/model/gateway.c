#include "model/gateway.h"

#include <jansson.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/jot.h"
#include "model/gateway_inner.h"

struct gateway *gateway_new(const struct gateway_config *config) {
    struct gateway *g = xnew(struct gateway);
    g->config = *config;
    return g;
}

struct forward *forward_new(struct gateway *g, struct http_exchange *x,
                            const struct model_codec *codec, const char *account) {
    struct forward *f = xnew(struct forward);
    *f = (struct forward){.gateway = g,
                          .x = x,
                          .codec = codec,
                          .whole = BUF(GATEWAY_ANSWER_MAX),
                          .strip = {.record = BUF(USAGE_RECORD_MAX)},
                          .next = g->forwards};
    snprintf(f->account, sizeof(f->account), "%s", account);
    if (f->next)
        f->next->prev = f;
    g->forwards = f;
    return f;
}

void forward_free(struct forward *f) {
    if (f->fetch)
        fetch_cancel(f->fetch);
    loop_timer_free(f->again);
    gateway_login_done(f);
    paid_settle(&f->paid, NULL);
    model_stream_free(f->reader);
    model_provider_done(&f->provider);
    json_decref(f->root);
    buf_done(&f->whole);
    usage_strip_done(&f->strip);
    gateway_mask_done(f);
    *(f->prev ? &f->prev->next : &f->gateway->forwards) = f->next;
    if (f->next)
        f->next->prev = f->prev;
    free(f);
}

void forward_detach(struct forward *f) {
    if (!f->x)
        return;
    f->x->user = NULL;
    f->x->on_gone = NULL;
}

void gateway_free(struct gateway *g) {
    if (!g)
        return;
    while (g->forwards) {
        struct forward *f = g->forwards;
        struct http_exchange *x = f->x;
        forward_detach(f);
        gateway_settle_part(f, 0, "the daemon is stopping");
        forward_free(f);
        if (x)
            http_drop(x);
    }
    free_calls_done(&g->free_calls);
    free(g);
}

/* ---- Clients that leave ---- */

/*
 * An answer is read on without its client until its usage is known: otherwise a client that always
 * leaves early would pay estimates only. A stream that has reported its input ends, and costs what
 * has arrived, unless the provider charges it completely.
 */
static void on_gone(struct http_exchange *x) {
    struct forward *f = x->user;
    if (!f)
        return;
    forward_detach(f);
    http_drop(x);
    f->x = NULL;
    if (f->fetch && !gateway_may_leave(f))
        return;
    if (f->fetch) {
        gateway_settle_part(f, 0, GATEWAY_LEFT);
    } else {
        gateway_tell(f, 0, &(struct model_usage){0}, true, GATEWAY_LEFT);
        paid_nothing(&f->paid);
    }
    forward_free(f);
}

/* ---- The request ---- */

/* Joins the values of all fields of this name by commas. */
static int take_fields(char *to, size_t size, const struct http_head *head, const char *name,
                       struct err *err) {
    size_t n = 0;
    for (size_t i = 0; i < head->count; i++) {
        struct http_text value = head->fields[i].value;
        if (!http_text_is_like(head->fields[i].name, name))
            continue;
        if (n + value.n + 2 > size)
            return err_set(err, ERR_INVALID, "the field '%s' is longer than %zu bytes", name, size);
        if (n > 0)
            to[n++] = ',';
        memcpy(to + n, value.s, value.n);
        n += value.n;
    }
    to[n] = '\0';
    return 0;
}

static void on_body(struct http_exchange *x, const char *body, size_t n) {
    struct forward *f = x->user;
    struct err err = {0};
    json_error_t why;
    f->root = json_loadb(body, n, JSON_ALLOW_NUL, &why);
    if (!json_is_object(f->root))
        err_set(&err, ERR_INVALID, "the request to the model is not a JSON object");
    const char *beta = f->codec == &model_anthropic ? "anthropic-beta" : "openai-beta";
    if (err.code || gateway_login_take(f, x->head, &err) < 0 || gateway_rewrite(f, &err) < 0 ||
        take_fields(f->version, sizeof(f->version), x->head, "anthropic-version", &err) < 0 ||
        take_fields(f->beta, sizeof(f->beta), x->head, beta, &err) < 0 ||
        gateway_login_beta(f, &err) < 0) {
        gateway_refuse(f, gateway_failure(&err), &err);
        return;
    }
    x->on_gone = on_gone;
    http_hold(x);
    gateway_pay(f);
}

/* ---- Routes ---- */

static bool ends_with(struct http_text path, const char *end) {
    size_t n = strlen(end);
    return path.n >= n && memcmp(path.s + path.n - n, end, n) == 0;
}

/* ".../models/MODEL:VERB" of Gemini */
static const struct {
    const char *verb;
    enum gateway_kind kind;
    bool is_stream;
} gemini_verbs[] = {
    {":generateContent", GATEWAY_CALL, false},
    {":streamGenerateContent", GATEWAY_CALL, true},
    {":countTokens", GATEWAY_COUNT, false},
};
enum { GEMINI_VERBS = sizeof(gemini_verbs) / sizeof(*gemini_verbs) };

/* One model, with the members that both OpenAI's and Anthropic's clients read. */
static void put_model(struct jot *j, const char *id) {
    jot_object(j, NULL);
    jot_string(j, "id", id);
    jot_string(j, "object", "model");
    jot_u64(j, "created", 0);
    jot_string(j, "owned_by", "owner");
    jot_string(j, "type", "model");
    jot_string(j, "display_name", id);
    jot_string(j, "created_at", "1970-01-01T00:00:00Z");
    jot_end(j, '}');
}

/* The same for Gemini's clients. */
static void put_gemini_model(struct jot *j, const char *id) {
    char name[256];
    snprintf(name, sizeof(name), "models/%s", id);
    jot_object(j, NULL);
    jot_string(j, "name", name);
    jot_string(j, "baseModelId", id);
    jot_string(j, "displayName", id);
    jot_array(j, "supportedGenerationMethods");
    for (size_t i = 0; i < GEMINI_VERBS; i++)
        jot_string(j, NULL, gemini_verbs[i].verb + 1);
    jot_end(j, ']');
    jot_end(j, '}');
}

static bool is_gemini_path(struct http_text path) {
    return memmem(path.s, path.n, "/v1beta/", 8) != NULL;
}

/* Returns the name of a model that machines can ask for, by number; NULL: there are not so many. */
static const char *model_listed(const struct conf *conf, size_t i) {
    if (!conf)
        return NULL;
    if (i < conf->alias_count)
        return conf->aliases[i].name;
    i -= conf->alias_count;
    for (size_t k = 0; k < conf->known_count; k++)
        if (!strchr(conf->known[k].name, '*') && i-- == 0)
            return conf->known[k].name;
    return NULL;
}

static void list_models(struct gateway *g, struct http_exchange *x) {
    struct buf body DEFER(buf_done) = BUF(64 << 10);
    struct jot j = JOT(&body);
    bool is_gemini = is_gemini_path(x->head->path);
    const char *name;
    jot_object(&j, NULL);
    if (!is_gemini)
        jot_string(&j, "object", "list");
    jot_array(&j, is_gemini ? "models" : "data");
    for (size_t i = 0; (name = model_listed(g->config.conf, i)); i++)
        (is_gemini ? put_gemini_model : put_model)(&j, name);
    jot_end(&j, ']');
    if (!is_gemini)
        jot_bool(&j, "has_more", false);
    jot_end(&j, '}');
    http_reply(x, 200, HTTP_FIELDS({"Content-Type", "application/json"}), body.data, body.len);
}

/* Finds the model of ".../models/ID"; IDs may contain slashes. NULL: none. */
static const char *model_of_path(const struct gateway *g, struct http_text path) {
    static const char lead[] = "/models/";
    const char *at = memmem(path.s, path.n, lead, strlen(lead)), *name;
    size_t n = at ? (size_t)(path.s + path.n - at) - strlen(lead) : 0;
    for (size_t i = 0; at && (name = model_listed(g->config.conf, i)); i++)
        if (strlen(name) == n && memcmp(name, at + strlen(lead), n) == 0)
            return name;
    return NULL;
}

static void show_model(struct http_exchange *x, const char *id) {
    struct buf body DEFER(buf_done) = BUF(4 << 10);
    struct jot j = JOT(&body);
    (is_gemini_path(x->head->path) ? put_gemini_model : put_model)(&j, id);
    http_reply(x, 200, HTTP_FIELDS({"Content-Type", "application/json"}), body.data, body.len);
}

/* Answers with an error in the format that the client most probably speaks. */
static void refuse_path(struct http_exchange *x, int status, const char *text) {
    struct buf body DEFER(buf_done) = BUF(4 << 10);
    struct http_text path = x->head->path;
    bool is_anthropic =
        http_field_find(x->head, "anthropic-version") || memmem(path.s, path.n, "/messages", 9);
    bool is_gemini = is_gemini_path(path);
    (void)model_put_failure(is_anthropic ? &model_anthropic
                            : is_gemini  ? &model_gemini
                                         : &model_chat,
                            status == 404   ? MODEL_FAIL_NOT_FOUND
                            : status == 429 ? MODEL_FAIL_RATE
                                            : MODEL_FAIL_INVALID,
                            text, false, &body);
    http_reply(x, status,
               HTTP_FIELDS({"Content-Type", "application/json"},
                           {"x-should-retry", status == 429 ? "true" : "false"},
                           {status == 429 ? "Retry-After" : NULL, "1"}),
               body.data, body.len);
}

/* Counts a request that costs nothing. True: there were too many, and it was refused. */
static bool refuse_free(struct gateway *g, struct http_exchange *x, const char *account) {
    char text[160];
    if (free_calls_take(&g->free_calls, account, loop_now_ms(g->config.loop)))
        return false;
    snprintf(text, sizeof(text),
             "this machine sends too many requests that cost nothing: up to %d at once and %d per "
             "second are answered",
             FREE_CALLS_BURST, FREE_CALLS_PER_S);
    refuse_path(x, 429, text);
    return true;
}

/* While the body is collected the HTTP server owns the exchange, so this frees only the struct
 * forward. */
static void on_gone_early(struct http_exchange *x) {
    if (x->user)
        forward_free(x->user);
    x->user = NULL;
}

static bool has_query(struct http_text query, const char *pair) {
    const char *at = query.s ? memmem(query.s, query.n, pair, strlen(pair)) : NULL;
    const char *end = at ? at + strlen(pair) : NULL;
    return at && (at == query.s || at[-1] == '&') && (end == query.s + query.n || *end == '&');
}

/* Clients add "/v1" to their base URL or not, so only the end of a path counts. */
static const struct {
    const char *end;
    const struct model_codec *codec;
    enum gateway_kind kind;
} posts[] = {
    {"/messages", &model_anthropic, GATEWAY_CALL},
    {"/messages/count_tokens", &model_anthropic, GATEWAY_COUNT},
    {"/chat/completions", &model_chat, GATEWAY_CALL},
    {"/embeddings", &model_chat, GATEWAY_EMBED},
    {"/responses", &model_responses, GATEWAY_CALL},
};

/* Copies the model of the path. It becomes a part of a URL, so only these characters are allowed.
 */
static bool gemini_model(struct http_text path, size_t verb, char ret[128]) {
    static const char lead[] = "/models/";
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./";
    const char *at = memmem(path.s, path.n, lead, strlen(lead));
    if (!at)
        return false;
    at += strlen(lead);
    size_t n = (size_t)(path.s + path.n - at) - strlen(gemini_verbs[verb].verb);
    if (n == 0 || n >= 128)
        return false;
    memcpy(ret, at, n);
    ret[n] = '\0';
    return strspn(ret, allowed) == n && !strstr(ret, "..");
}

static bool gateway_gemini(struct gateway *g, struct http_exchange *x, const char *account) {
    char model[128];
    size_t v = 0;
    while (v < GEMINI_VERBS && !ends_with(x->head->path, gemini_verbs[v].verb))
        v++;
    if (v == GEMINI_VERBS || !gemini_model(x->head->path, v, model))
        return false;
    if (gemini_verbs[v].is_stream && !has_query(x->head->query, "alt=sse")) {
        refuse_path(x, 400, "streams are served as events only: add ?alt=sse");
        return true;
    }
    if (gemini_verbs[v].kind == GATEWAY_COUNT && refuse_free(g, x, account))
        return true;
    struct forward *f = forward_new(g, x, &model_gemini, account);
    f->kind = gemini_verbs[v].kind;
    f->stream = gemini_verbs[v].is_stream;
    memcpy(f->path_model, model, sizeof(model));
    x->user = f;
    x->on_gone = on_gone_early;
    x->payer = http_payer(account);
    http_collect(x, MODEL_REQUEST_MAX, on_body);
    return true;
}

static bool gateway_post(struct gateway *g, struct http_exchange *x, const char *account) {
    for (size_t i = 0; i < sizeof(posts) / sizeof(*posts); i++)
        if (ends_with(x->head->path, posts[i].end)) {
            if (posts[i].kind == GATEWAY_COUNT && refuse_free(g, x, account))
                return true;
            struct forward *f = forward_new(g, x, posts[i].codec, account);
            f->kind = posts[i].kind;
            f->is_beta = has_query(x->head->query, "beta=true");
            x->user = f;
            x->on_gone = on_gone_early;
            x->payer = http_payer(account);
            http_collect(x, MODEL_REQUEST_MAX, on_body);
            return true;
        }
    return gateway_gemini(g, x, account);
}

static bool gateway_get(struct gateway *g, struct http_exchange *x, const char *account) {
    struct http_text path = x->head->path;
    const char *model;
    if (refuse_free(g, x, account))
        return true;
    if (x->head->upgrade && ends_with(path, "/responses")) {
        /* Codex goes on with HTTP at once after 426, and after seven attempts otherwise. */
        refuse_path(x, 426, "WebSocket is not supported: use HTTP");
        return true;
    }
    if (ends_with(path, "/models")) {
        if (!gateway_login_list(g, x, account, on_gone))
            list_models(g, x);
        return true;
    }
    if ((model = model_of_path(g, path))) {
        show_model(x, model);
        return true;
    }
    if (gateway_login_answer(x))
        return true;
    /* Claude Code asks whether the server is there. */
    if (!ends_with(path, "/api/hello") && path.n > 1)
        return false;
    http_reply(x, 200, HTTP_FIELDS({"Content-Type", "application/json"}), "{}", 2);
    return true;
}

void gateway_request(struct gateway *g, struct http_exchange *x, const char *account) {
    bool is_post = http_text_is(x->head->method, "POST");
    bool is_get = http_text_is(x->head->method, "GET") || http_text_is(x->head->method, "HEAD");
    if ((is_post && gateway_post(g, x, account)) || (is_get && gateway_get(g, x, account)))
        return;
    refuse_path(x, 404,
                "unknown path: use /v1/messages, /v1/chat/completions, /v1/responses, "
                "/v1/embeddings or /v1/models");
}
