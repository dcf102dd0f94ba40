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
    paid_settle(&f->paid, NULL);
    model_stream_free(f->reader);
    model_provider_done(&f->provider);
    json_decref(f->root);
    buf_done(&f->whole);
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
    free(g);
}

/* ---- Clients that leave ---- */

/*
 * An answer that the provider charges completely is read to its end, so that its usage is known. A
 * stream of another provider ends, and costs what has arrived.
 */
static void on_gone(struct http_exchange *x) {
    struct forward *f = x->user;
    if (!f)
        return;
    forward_detach(f);
    http_drop(x);
    f->x = NULL;
    if (f->fetch && (!f->stream || f->provider.charges_whole))
        return;
    if (f->fetch) {
        gateway_settle_part(f, 0, "the client closed the connection");
    } else {
        gateway_tell(f, 0, &(struct model_usage){0}, true, "the client closed the connection");
        paid_nothing(&f->paid);
    }
    forward_free(f);
}

/* ---- The request ---- */

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
    json_error_t why;
    f->root = json_loadb(body, n, JSON_ALLOW_NUL, &why);
    if (!json_is_object(f->root))
        err_set(&err, ERR_INVALID, "the request to the model is not a JSON object");
    if (err.code || gateway_rewrite(f, &err) < 0) {
        gateway_refuse(f, gateway_failure(&err), &err);
        return;
    }
    take_field(f->version, sizeof(f->version), x->head, "anthropic-version");
    take_field(f->beta, sizeof(f->beta), x->head,
               f->codec == &model_anthropic ? "anthropic-beta" : "openai-beta");
    x->on_gone = on_gone;
    http_hold(x);
    gateway_pay(f);
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
