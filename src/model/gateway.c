#include "model/gateway.h"

#include <jansson.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/jot.h"
#include "model/codec.h"
#include "model/json.h"
#include "model/paid.h"
#include "model/reach.h"

enum { ANSWER_MAX = 32 << 20 };

struct gateway {
    struct gateway_config config;
    struct forward *forwards; /* list of requests in progress */
};

/* One request that is forwarded to a provider. */
struct forward {
    struct gateway *gateway;
    struct forward *next, *prev;
    struct http_exchange *x;
    const struct model_codec *codec;
    char account[ACCOUNT_ID_SIZE];
    struct model_provider provider;
    struct paid paid;
    struct cost worst;
    bool told;
    struct buf body; /* the request as sent to the provider */
    char url[CONF_TEXT_SIZE + 32];
    bool stream, begun;
    struct fetch *fetch;
    struct model_stream *reader; /* finds the usage in a stream */
    struct buf whole;            /* an answer that is not a stream */
    int status;
    char type[80], retry_after[40], retry_after_ms[40];
    char version[24], beta[512]; /* the client's fields about the Anthropic API */
};

struct gateway *gateway_new(const struct gateway_config *config) {
    struct gateway *g = xnew(struct gateway);
    g->config = *config;
    return g;
}

static struct forward *forward_new(struct gateway *g, struct http_exchange *x,
                                   const struct model_codec *codec, const char *account) {
    struct forward *f = xnew(struct forward);
    *f = (struct forward){.gateway = g,
                          .x = x,
                          .codec = codec,
                          .body = BUF(MODEL_REQUEST_MAX),
                          .whole = BUF(ANSWER_MAX),
                          .next = g->forwards};
    snprintf(f->account, sizeof(f->account), "%s", account);
    if (f->next)
        f->next->prev = f;
    g->forwards = f;
    return f;
}

static void forward_free(struct forward *f) {
    if (f->fetch)
        fetch_cancel(f->fetch);
    paid_settle(&f->paid, NULL);
    model_stream_free(f->reader);
    model_provider_done(&f->provider);
    buf_done(&f->body);
    buf_done(&f->whole);
    *(f->prev ? &f->prev->next : &f->gateway->forwards) = f->next;
    if (f->next)
        f->next->prev = f->prev;
    free(f);
}

/* Reports the outcome of a request once. usage NULL: unknown, so the held (reserved) amount is the
 * cost. */
static void gateway_tell(struct forward *f, int status, const struct model_usage *usage,
                         const char *why) {
    const struct gateway_config *c = &f->gateway->config;
    bool held = f->paid.hold[0];
    const struct gateway_call call = {
        .account = f->account,
        .provider = f->provider.name,
        .model = f->provider.model,
        .status = status,
        .usage = usage ? *usage : (struct model_usage){0},
        .cost = usage  ? model_cost(f->paid.row, usage)
                : held ? f->worst
                       : (struct cost){0},
        .is_exact = usage || !held,
        .why = why,
    };
    if (c->told && !f->told)
        c->told(c->told_arg, &call);
    f->told = true;
}

/* Detaches f from the HTTP exchange: the HTTP server makes no more callbacks for it. */
static void gateway_let_go(struct forward *f) {
    f->x->user = NULL;
    f->x->on_gone = NULL;
}

void gateway_free(struct gateway *g) {
    if (!g)
        return;
    while (g->forwards) {
        struct forward *f = g->forwards;
        struct http_exchange *x = f->x;
        gateway_let_go(f);
        gateway_tell(f, 0, NULL, "the daemon is stopping");
        forward_free(f);
        http_drop(x);
    }
    free(g);
}

/* ---- Refusals by the gateway ---- */

static void gateway_refuse(struct forward *f, enum model_failure failure, const struct err *err) {
    struct buf body DEFER(buf_done) = BUF(16 << 10);
    char text[sizeof(err->text) + sizeof(err->remedy) + 8];
    struct http_exchange *x = f->x;
    snprintf(text, sizeof(text), "%s%s%s%s", err->text, err->remedy[0] ? " (" : "", err->remedy,
             err->remedy[0] ? ")" : "");
    (void)model_put_failure(f->codec, failure, text, false, &body);
    gateway_tell(f, model_failure_row(failure)->status, &(struct model_usage){0}, err->text);
    gateway_let_go(f);
    forward_free(f);
    http_reply(
        x, model_failure_row(failure)->status,
        HTTP_FIELDS({"Content-Type", "application/json"},
                    {"x-should-retry", model_failure_row(failure)->retry ? "true" : "false"}),
        body.data, body.len);
}

static enum model_failure failure_for(const struct err *err) {
    switch (err->code) {
    case ERR_LIMIT:
    case ERR_UNSUPPORTED:
        return MODEL_FAIL_BUDGET;
    case ERR_NOT_FOUND:
        return MODEL_FAIL_NOT_FOUND;
    case ERR_DENIED:
        return MODEL_FAIL_DENIED;
    case ERR_INVALID:
        return MODEL_FAIL_INVALID;
    default:
        return MODEL_FAIL_SERVER;
    }
}

/* ---- The provider's answer ---- */

static void copy_field(char *to, size_t size, const struct fetch *fetch, const char *name) {
    const char *value = fetch_field(fetch, name);
    snprintf(to, size, "%s", value && strlen(value) < size ? value : "");
}

static void on_head(void *arg, const struct fetch *fetch, int status) {
    struct forward *f = arg;
    f->status = status;
    copy_field(f->type, sizeof(f->type), fetch, "content-type");
    copy_field(f->retry_after, sizeof(f->retry_after), fetch, "retry-after");
    copy_field(f->retry_after_ms, sizeof(f->retry_after_ms), fetch, "retry-after-ms");
    if (status != 200 || !f->stream)
        return;
    f->reader = model_stream_new(f->codec, NULL, NULL);
    f->begun = true;
    http_begin(f->x, 200, HTTP_FIELDS({"Content-Type", "text/event-stream"}), -1);
}

/* Bytes are passed on unchanged; the usage is parsed on the way. */
static bool on_bytes(void *arg, const char *bytes, size_t n) {
    struct forward *f = arg;
    if (!f->begun)
        return buf_add(&f->whole, bytes, n);
    (void)model_stream_feed(f->reader, bytes, n, NULL);
    (void)http_write(f->x, bytes, n);
    return true;
}

/* Only a complete stream has reported its whole usage. */
static bool read_usage(struct forward *f, struct model_usage *ret) {
    struct model_answer answer DEFER(model_answer_done) = {0};
    bool ok = f->reader ? model_stream_end(f->reader, &answer, NULL) == 0
                        : model_get_answer(f->codec, f->whole.data ? f->whole.data : "",
                                           f->whole.len, &answer, NULL, NULL) == 0;
    *ret = answer.usage;
    return ok && answer.has_usage;
}

static void gateway_settle(struct forward *f, enum fetch_end end, const char *why) {
    struct model_usage usage = {0};
    bool refused = f->status != 0 && f->status != 200;
    bool costs = !refused && end != FETCH_CONNECT && end != FETCH_TRUST;
    bool known = !costs || (end == FETCH_DONE && read_usage(f, &usage));
    gateway_tell(f, f->status, known ? &usage : NULL, end == FETCH_DONE ? NULL : why);
    paid_settle(&f->paid, known ? &usage : NULL);
}

static size_t add_pair(struct http_pair *pairs, size_t n, const char *name, const char *value) {
    if (!value[0])
        return n;
    pairs[n] = (struct http_pair){name, value};
    return n + 1;
}

static void reply_whole(struct forward *f) {
    struct http_pair fields[4] = {0};
    struct http_exchange *x = f->x;
    size_t n = add_pair(fields, 0, "Content-Type", f->type[0] ? f->type : "application/json");
    n = add_pair(fields, n, "retry-after", f->retry_after);
    add_pair(fields, n, "retry-after-ms", f->retry_after_ms);
    gateway_let_go(f);
    http_reply(x, f->status, fields, f->whole.data, f->whole.len);
    forward_free(f);
}

static void gateway_on_end(void *arg, enum fetch_end end, const char *why) {
    static const enum model_failure failures[] = {
        [FETCH_DONE] = MODEL_FAIL_GARBAGE,    [FETCH_STOPPED] = MODEL_FAIL_LARGE,
        [FETCH_CONNECT] = MODEL_FAIL_CONNECT, [FETCH_TRUST] = MODEL_FAIL_TRUST,
        [FETCH_TIMEOUT] = MODEL_FAIL_TIMEOUT, [FETCH_CUT] = MODEL_FAIL_CUT,
        [FETCH_LARGE] = MODEL_FAIL_LARGE,
    };
    struct forward *f = arg;
    struct http_exchange *x = f->x;
    f->fetch = NULL;
    gateway_settle(f, end, why);
    if (f->begun) {
        gateway_let_go(f);
        forward_free(f);
        if (end == FETCH_DONE)
            http_end(x);
        else
            http_drop(x); /* the client must see that the stream was cut */
        return;
    }
    if (end == FETCH_DONE && f->status >= 200) {
        reply_whole(f);
        return;
    }
    struct err err = {0};
    model_failure_err(failures[end], why, &err);
    gateway_refuse(f, failures[end], &err);
}

/* ---- Sending to the provider ---- */

static int send_on(struct forward *f, struct err *err) {
    static const struct fetch_events events = {on_head, on_bytes, gateway_on_end};
    const struct model_provider *p = &f->provider;
    bool bearer = strcmp(p->auth, "bearer") == 0;
    struct http_pair fields[5] = {{"Content-Type", "application/json"},
                                  {"Accept", f->stream ? "text/event-stream" : "application/json"}};
    if (f->codec == &model_anthropic) {
        size_t n =
            add_pair(fields, 2, "anthropic-version", f->version[0] ? f->version : p->version);
        add_pair(fields, n, "anthropic-beta", f->beta);
    }
    struct fetch_request r = {
        .method = "POST",
        .url = f->url,
        .fields = fields,
        .secret_field = bearer ? "Authorization" : p->auth,
        .secret_lead = bearer ? "Bearer " : "",
        .secret = p->key,
        .body = f->body.data,
        .n = f->body.len,
        .max_bytes = ANSWER_MAX,
    };
    return fetch_start(f->gateway->config.fetcher, &r, &events, f, &f->fetch, err);
}

static void on_held(void *arg, const struct err *failed) {
    struct forward *f = arg;
    struct err err = {0};
    if (failed) {
        gateway_refuse(f, MODEL_FAIL_SERVER, failed);
        return;
    }
    if (send_on(f, &err) == 0)
        return;
    paid_nothing(&f->paid);
    gateway_refuse(f, MODEL_FAIL_INVALID, &err);
}

/* The client has closed the connection: ends the request and charges the held amount. */
static void on_gone(struct http_exchange *x) {
    struct forward *f = x->user;
    if (!f)
        return;
    bool never_sent = !f->fetch;
    gateway_tell(f, 0, never_sent ? &(struct model_usage){0} : NULL,
                 "the client closed the connection");
    if (never_sent)
        paid_nothing(&f->paid);
    gateway_let_go(f);
    forward_free(f);
    http_drop(x);
}

/* ---- The request ---- */

static const char *known_provider(const struct model_codec *codec) {
    if (codec == &model_anthropic)
        return "anthropic";
    return codec == &model_chat ? "openai" : "openai-responses";
}

static bool is_provider(const struct conf *conf, const char *name, size_t n) {
    static const char *const known[] = {"anthropic", "openai", "openai-responses"};
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (strlen(known[i]) == n && memcmp(known[i], name, n) == 0)
            return true;
    for (size_t i = 0; conf && i < conf->provider_count; i++)
        if (strlen(conf->providers[i].name) == n && memcmp(conf->providers[i].name, name, n) == 0)
            return true;
    return false;
}

/* Model names may contain slashes. */
static void full_name(const struct conf *conf, const struct model_codec *codec, const char *model,
                      char *ret, size_t size) {
    const char *slash = strchr(model, '/');
    const char *provider = known_provider(codec);
    if (slash && is_provider(conf, model, (size_t)(slash - model))) {
        snprintf(ret, size, "%s", model);
        return;
    }
    for (size_t i = conf ? conf->provider_count : 0; i > 0; i--)
        if (strcmp(conf->providers[i - 1].format, model_codec_name(codec)) == 0)
            provider = conf->providers[i - 1].name;
    snprintf(ret, size, "%s/%s", provider, model);
}

static int find_provider(struct forward *f, const char *model, struct err *err) {
    const struct gateway_config *c = &f->gateway->config;
    char name[192];
    if (!model || !model[0])
        return err_set(err, ERR_INVALID, "the request has no member 'model'");
    full_name(c->conf, f->codec, model, name, sizeof(name));
    if (model_provider_find(c->conf, name, c->env, c->env_arg, &f->provider, err) < 0)
        return -1;
    if (f->provider.codec == f->codec)
        return 0;
    err_set(err, ERR_INVALID, "model '%.80s' cannot be used with this API format", model);
    return err_remedy(err, "post to a path that ends in %s",
                      f->provider.codec ? model_codec_path(f->provider.codec) : "(none)");
}

/* Returns the token limit of the answer. If the request has no limit, adds the default limit to the
 * request. */
static uint64_t limit_tokens(struct forward *f, json_t *root) {
    static const char *const names[] = {"max_completion_tokens", "max_output_tokens", "max_tokens"};
    const struct conf_model *row = f->paid.row;
    uint64_t wanted = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        uint64_t n = json_count(root, names[i]);
        wanted = n > wanted ? n : wanted;
    }
    if (wanted)
        return wanted;
    wanted = row && row->max_tokens ? row->max_tokens : GATEWAY_MAX_TOKENS;
    const char *name = f->codec == &model_responses                                  ? names[1]
                       : f->codec == &model_chat && !f->provider.wire.old_max_tokens ? names[0]
                                                                                     : names[2];
    json_object_set_new(root, name, json_integer((json_int_t)wanted));
    return wanted;
}

/* Several answers would cost more than the reserved worst case. */
static int check_count(const json_t *root, struct err *err) {
    const json_t *n = json_object_get(root, "n");
    return n && json_integer_value(n) != 1
               ? err_set(err, ERR_INVALID, "the member 'n' of the request must be 1")
               : 0;
}

static void want_usage(struct forward *f, json_t *root) {
    if (f->codec != &model_chat || !f->stream)
        return;
    json_t *options = json_object_get(root, "stream_options");
    if (!json_is_object(options)) {
        json_object_set_new(root, "stream_options", json_object());
        options = json_object_get(root, "stream_options");
    }
    json_object_set_new(options, "include_usage", json_true());
}

/* The provider is trusted, but the servers that it contacts are not. */
static int check_reach(const struct forward *f, const json_t *root, struct err *err) {
    const struct gateway_config *c = &f->gateway->config;
    char what[MODEL_REACH_SIZE];
    if (!c->reaches || !model_reaches_out(f->codec, root, what))
        return 0;
    return c->reaches(c->reaches_arg, f->account, what, err);
}

static int rewrite(struct forward *f, json_t *root, uint64_t *ret_max, struct err *err) {
    const struct conf *conf = f->gateway->config.conf;
    if (find_provider(f, json_member(root, "model"), err) < 0 || check_count(root, err) < 0)
        return -1;
    f->stream = json_is_true(json_object_get(root, "stream"));
    f->paid = (struct paid){
        .loop = f->gateway->config.loop,
        .store = f->gateway->config.store,
        .account = f->account,
        .model = f->provider.model,
        .row = conf ? model_row(conf->known, conf->known_count, f->provider.model) : NULL};
    json_object_set_new(root, "model", json_string(f->provider.model));
    *ret_max = limit_tokens(f, root);
    want_usage(f, root);
    if (check_reach(f, root, err) < 0)
        return -1;
    char *text DEFER_FREE = json_dumps(root, JSON_COMPACT);
    if (!text || !buf_add(&f->body, text, strlen(text)))
        return err_set(err, ERR_LIMIT, "the request to the model is too large");
    snprintf(f->url, sizeof(f->url), "%s%s", f->provider.url, model_codec_path(f->codec));
    return 0;
}

static void take_field(char *to, size_t size, const struct http_head *head, const char *name) {
    struct http_text said = http_field_only(head, name);
    if (!said.s || said.n >= size)
        return;
    memcpy(to, said.s, said.n);
    to[said.n] = '\0';
}

static void on_body(struct http_exchange *x, const char *body, size_t n) {
    struct forward *f = x->user;
    struct err err = {0};
    uint64_t max_tokens = 0;
    json_error_t why;
    json_t *root DEFER(json_decrefp) = json_loadb(body, n, JSON_ALLOW_NUL, &why);
    if (!json_is_object(root))
        err_set(&err, ERR_INVALID, "the request to the model is not a JSON object");
    if (err.code || rewrite(f, root, &max_tokens, &err) < 0) {
        gateway_refuse(f, failure_for(&err), &err);
        return;
    }
    f->worst = model_worst_cost(f->paid.row, f->body.len, max_tokens);
    take_field(f->version, sizeof(f->version), x->head, "anthropic-version");
    take_field(f->beta, sizeof(f->beta), x->head, "anthropic-beta");
    x->on_gone = on_gone;
    if (paid_hold(&f->paid, &f->worst, on_held, f, &err) < 0) {
        gateway_refuse(f, failure_for(&err), &err);
        return;
    }
    http_hold(x);
}

/* ---- Routes ---- */

static bool ends_with(struct http_text path, const char *end) {
    size_t n = strlen(end);
    return path.n >= n && memcmp(path.s + path.n - n, end, n) == 0;
}

static void list_models(struct gateway *g, struct http_exchange *x) {
    struct buf body DEFER(buf_done) = BUF(64 << 10);
    struct jot j = JOT(&body);
    const struct conf *conf = g->config.conf;
    jot_object(&j, NULL);
    jot_string(&j, "object", "list");
    jot_array(&j, "data");
    for (size_t i = 0; conf && i < conf->known_count; i++) {
        if (strchr(conf->known[i].name, '*'))
            continue;
        jot_object(&j, NULL);
        jot_string(&j, "id", conf->known[i].name);
        jot_string(&j, "object", "model");
        jot_u64(&j, "created", 0);
        jot_string(&j, "owned_by", "owner");
        jot_end(&j, '}');
    }
    jot_end(&j, ']');
    jot_end(&j, '}');
    http_reply(x, 200, HTTP_FIELDS({"Content-Type", "application/json"}), body.data, body.len);
}

/* While the body is collected the HTTP server owns the exchange, so this frees only the struct
 * forward. */
static void on_gone_early(struct http_exchange *x) {
    if (x->user)
        forward_free(x->user);
    x->user = NULL;
}

void gateway_request(struct gateway *g, struct http_exchange *x, const char *account) {
    static const struct model_codec *const codecs[] = {&model_anthropic, &model_chat,
                                                       &model_responses};
    static const char none[] = "{\"error\":{\"message\":\"unknown path: use /v1/messages, "
                               "/v1/chat/completions or /v1/responses\",\"type\":"
                               "\"invalid_request_error\",\"param\":null,\"code\":null}}";
    bool post = http_text_is(x->head->method, "POST");
    for (size_t i = 0; post && i < sizeof(codecs) / sizeof(*codecs); i++)
        if (ends_with(x->head->path, model_codec_path(codecs[i]))) {
            x->user = forward_new(g, x, codecs[i], account);
            x->on_gone = on_gone_early;
            http_collect(x, MODEL_REQUEST_MAX, on_body);
            return;
        }
    if (http_text_is(x->head->method, "GET") && ends_with(x->head->path, "/models"))
        list_models(g, x);
    else
        http_reply(x, 404, HTTP_FIELDS({"Content-Type", "application/json"}), none, strlen(none));
}
