/* Sends a request of the gateway: estimates it, holds its cost, and starts the HTTP call. */
#include <string.h>

#include "base/defer.h"
#include "model/gateway_inner.h"
#include "model/json.h"

/* Fewer tokens of output than this help no client: the call is refused instead. */
enum { LOWER_MIN = 1024 };

static size_t add_pair(struct http_pair *pairs, size_t n, const char *name, const char *value) {
    if (!value[0])
        return n;
    pairs[n] = (struct http_pair){name, value};
    return n + 1;
}

static const char *path_of(const struct forward *f) {
    static const char *const paths[] = {
        [GATEWAY_COUNT] = "/v1/messages/count_tokens", [GATEWAY_EMBED] = "/embeddings"};
    return f->kind == GATEWAY_CALL ? model_codec_path(f->codec) : paths[f->kind];
}

static void put_url(const struct forward *f, char *ret, size_t size) {
    const struct model_provider *p = &f->provider;
    if (f->kind == GATEWAY_LIST) {
        snprintf(ret, size, "%s/models%s%s", p->url, f->path_model[0] ? "?" : "", f->path_model);
        return;
    }
    if (f->codec != &model_gemini) {
        snprintf(ret, size, "%s%s%s", p->url, path_of(f),
                 f->is_beta && f->codec == &model_anthropic ? "?beta=true" : "");
        return;
    }
    snprintf(ret, size, "%s/v1beta/models/%s:%s", p->url, p->model,
             f->kind == GATEWAY_COUNT ? "countTokens"
             : f->stream              ? "streamGenerateContent?alt=sse"
                                      : "generateContent");
}

static int send_on(struct forward *f, struct err *err) {
    const struct model_provider *p = &f->provider;
    bool bearer = strcmp(p->auth, "bearer") == 0, is_anthropic = f->codec == &model_anthropic;
    bool is_list = f->kind == GATEWAY_LIST;
    char url[CONF_TEXT_SIZE + 256];
    struct http_pair fields[6 + LOGIN_FIELDS_MAX] = {
        {"Content-Type", "application/json"},
        {"Accept", f->stream ? "text/event-stream" : "application/json"}};
    if (f->codec == &model_gemini)
        json_object_del(f->root, "model");
    char *body DEFER_FREE = is_list ? NULL : json_dumps(f->root, JSON_COMPACT);
    if (!is_list && (!body || strlen(body) > MODEL_REQUEST_MAX))
        return err_set(err, ERR_INVALID, "the request to the model is too large");
    size_t n = 2;
    if (is_anthropic)
        n = add_pair(fields, n, "anthropic-version", f->version[0] ? f->version : p->version);
    n = add_pair(fields, n, is_anthropic ? "anthropic-beta" : "OpenAI-Beta", f->beta);
    if (f->login)
        gateway_login_fields(f, fields + n);
    put_url(f, url, sizeof(url));
    struct fetch_request r = {
        .method = is_list ? "GET" : "POST",
        .url = url,
        .fields = fields,
        .secret_field = bearer ? "Authorization" : p->auth,
        .secret_lead = bearer ? "Bearer " : "",
        .secret = p->key,
        .body = body,
        .n = body ? strlen(body) : 0,
        .max_bytes = GATEWAY_ANSWER_MAX,
    };
    return fetch_start(f->gateway->config.fetcher, &r, &gateway_events, f, &f->fetch, err);
}

void gateway_send_now(struct forward *f) {
    struct err err = {0};
    if (send_on(f, &err) == 0)
        return;
    paid_nothing(&f->paid);
    gateway_refuse(f, MODEL_FAIL_INVALID, &err);
}

static void send_start(struct forward *f) {
    if (f->login)
        gateway_login_ask(f);
    else
        gateway_send_now(f);
}

/* ---- Holding the cost ---- */

/* The fewest tokens of output that the call can be lowered to. */
static uint64_t least_out(const struct forward *f) {
    uint64_t thinking = json_count(json_object_get(f->root, "thinking"), "budget_tokens");
    uint64_t least = thinking ? thinking + LOWER_MIN : LOWER_MIN;
    return least < f->guess.usage.out ? least : f->guess.usage.out;
}

/*
 * The estimate does not fit into the budget, and no other call is in the way: asks for as many
 * tokens as the rest of the budget allows. False: that is not enough.
 */
static bool send_lower(struct forward *f) {
    struct cost left;
    struct err err = {0};
    if (f->kind != GATEWAY_CALL || gateway_takes_no_limit(f) ||
        store_account_left(ledger_store(f->paid.ledger), f->account, &left, &err) < 0)
        return false;
    uint64_t out = model_guess_fits(&f->guess, f->paid.row, &left);
    if (out < least_out(f) || out >= f->max_tokens || out >= f->guess.usage.out)
        return false;
    gateway_set_limit(f, out);
    f->lowered = true;
    f->guess.cost = model_guess_cost(&f->guess, f->paid.row, out);
    f->guess.usage.out = out;
    return true;
}

static void send_hold(struct forward *f);

static void send_on_held(void *arg, const struct err *failed) {
    struct forward *f = arg;
    if (!failed)
        send_start(f);
    else if (failed->code == ERR_LIMIT && send_lower(f))
        send_hold(f);
    else
        gateway_refuse(f, gateway_failure(failed), failed);
}

static void send_hold(struct forward *f) {
    struct err err = {0};
    const struct cost least = model_guess_cost(&f->guess, f->paid.row, least_out(f));
    while (paid_hold(&f->paid, &f->guess.cost, &least, send_on_held, f, &err) < 0)
        if (err.code != ERR_LIMIT || !send_lower(f)) {
            gateway_refuse(f, gateway_failure(&err), &err);
            return;
        }
}

void gateway_pay(struct forward *f) {
    const struct model_subject who = {f->account, f->provider.model, f->paid.row};
    if (f->kind == GATEWAY_COUNT || f->kind == GATEWAY_LIST) {
        send_start(f);
        return;
    }
    f->size = model_size_of(f->codec, f->root);
    f->guess = model_estimate(ledger_estimates(f->paid.ledger), &who, &f->size, f->max_tokens);
    send_hold(f);
}
