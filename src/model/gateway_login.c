/*
 * Requests of the gateway that use a login of the owner instead of a key. A client asks for that
 * by the placeholder of the vendor, and its machine must have a grant of the login.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/login.h"
#include "model/gateway_inner.h"
#include "model/json.h"

/* Clients of an account that is not paid by key must ask for it. */
#define CLAUDE_BETA "oauth-2025-04-20"
enum { FIELD_MAX = 4096, LIST_MAX = 4 << 20 };

/* ---- The request ---- */

int gateway_login_take(struct forward *f, const struct http_head *head, struct err *err) {
    f->login = login_vendor_of(head);
    for (size_t i = 0; f->login && f->login->fields[i]; i++) {
        struct http_text value = http_field_only(head, f->login->fields[i]);
        if (!value.s)
            continue;
        if (value.n > FIELD_MAX)
            return err_set(err, ERR_INVALID, "the field '%s' is longer than %d bytes",
                           f->login->fields[i], FIELD_MAX);
        f->login_fields[i] = xstrndup(value.s, value.n);
    }
    return 0;
}

void gateway_login_done(struct forward *f) {
    login_wait_cancel(f->login_wait);
    f->login_wait = NULL;
    for (size_t i = 0; i < LOGIN_FIELDS_MAX; i++)
        free(f->login_fields[i]);
}

int gateway_login_aim(struct forward *f, const char *model, struct err *err) {
    const struct gateway_config *c = &f->gateway->config;
    struct model_provider p = {.codec = f->codec, .auth = "bearer", .version = "2023-06-01"};
    if (f->login->codec != f->codec || f->kind == GATEWAY_EMBED)
        return err_set(err, ERR_INVALID, "the login '%s' cannot be used with this API format",
                       f->login->name);
    if (strlen(model) >= sizeof(p.model))
        return err_set(err, ERR_INVALID, "the name of the model is too long");
    if (!c->logins || !c->login)
        return err_set(err, ERR_DENIED, "logins are not available");
    if (c->login(c->login_arg, f->account, f->login->name, f->login_owner, err) < 0)
        return -1;
    snprintf(p.name, sizeof(p.name), "login-%s", f->login->name);
    snprintf(p.model, sizeof(p.model), "%s", model);
    snprintf(p.url, sizeof(p.url), "%s", login_url(c->conf, f->login));
    model_provider_done(&f->provider);
    f->provider = p;
    return 0;
}

size_t gateway_login_fields(const struct forward *f, struct http_pair *ret) {
    size_t n = 0;
    for (size_t i = 0; f->login->fields[i]; i++)
        if (f->login_fields[i])
            ret[n++] = (struct http_pair){f->login->fields[i], f->login_fields[i]};
    if (f->login_account[0])
        ret[n++] = (struct http_pair){"ChatGPT-Account-ID", f->login_account};
    return n;
}

/* Adds the mark of logins to the value of anthropic-beta, if the client did not. */
int gateway_login_beta(struct forward *f, struct err *err) {
    size_t n = strlen(f->beta);
    if (!f->login || f->codec != &model_anthropic || strstr(f->beta, CLAUDE_BETA))
        return 0;
    if (n + sizeof(CLAUDE_BETA) + 1 > sizeof(f->beta))
        return err_set(err, ERR_INVALID, "the field 'anthropic-beta' is too long");
    snprintf(f->beta + n, sizeof(f->beta) - n, "%s" CLAUDE_BETA, n ? "," : "");
    return 0;
}

/* ---- The token ---- */

static void login_got(void *arg, const struct login_ticket *ticket, const struct err *failed) {
    struct forward *f = arg;
    f->login_wait = NULL;
    if (failed) {
        paid_nothing(&f->paid);
        /* About the owner's login, not about the client's. */
        gateway_refuse(f, failed->code == ERR_DENIED ? MODEL_FAIL_KEY : gateway_failure(failed),
                       failed);
        return;
    }
    secret_free(f->provider.key);
    f->provider.key = secret_copy(ticket->access);
    f->login_version = ticket->version;
    snprintf(f->login_account, sizeof(f->login_account), "%s", ticket->account);
    gateway_send_now(f);
}

void gateway_login_ask(struct forward *f) {
    struct gateway *g = f->gateway;
    uint64_t rejected = f->login_again ? f->login_version : 0;
    logins_ask(g->config.logins, f->login_owner, f->login, rejected, login_got, f, &f->login_wait);
}

bool gateway_login_again(struct forward *f, enum fetch_end end) {
    if (!f->login || end != FETCH_DONE || f->status != 401 || f->begun || !f->x || f->login_again)
        return false;
    f->login_again = true;
    gateway_forget_answer(f);
    gateway_login_ask(f);
    return true;
}

/* ---- The list of models ---- */

/* Copies "client_version=VALUE" of the query, the only part that is forwarded. */
static void take_client_version(struct http_text query, char ret[64]) {
    static const char lead[] = "client_version=",
                      allowed[] = "0123456789.abcdefghijklmnopqrstuvwxyz-";
    size_t n = strlen(lead), len = 0;
    ret[0] = '\0';
    if (!query.s || query.n <= n || query.n >= 64 || memcmp(query.s, lead, n) != 0)
        return;
    for (size_t i = n; i < query.n; i++)
        if (!query.s[i] || !strchr(allowed, query.s[i]))
            return;
    for (size_t i = 0; i < query.n; i++)
        ret[len++] = query.s[i];
    ret[len] = '\0';
}

bool gateway_login_list(struct gateway *g, struct http_exchange *x, const char *account,
                        void (*on_gone)(struct http_exchange *x)) {
    const struct login_vendor *v = login_vendor_of(x->head);
    struct err err = {0};
    if (!v || v->codec != &model_responses)
        return false;
    struct forward *f = forward_new(g, x, v->codec, account);
    f->kind = GATEWAY_LIST;
    f->told = true; /* it is not a call of a model */
    take_client_version(x->head->query, f->path_model);
    if (gateway_login_take(f, x->head, &err) < 0 || gateway_login_aim(f, "", &err) < 0) {
        gateway_refuse(f, gateway_failure(&err), &err);
        return true;
    }
    x->user = f;
    x->on_gone = on_gone;
    http_hold(x);
    gateway_login_ask(f);
    return true;
}

/*
 * Routes about the account that Codex needs an answer to. They are not forwarded: the vendor's
 * answers have names and addresses of the owner. The routing is that of an account without one.
 */
static const struct {
    const char *end, *answer;
} fixed_answers[] = {
    {"/wham/accounts/check",
     "{\"accounts\":[{\"id\":\"" LOGIN_CODEX_ACCOUNT
     "\",\"structure\":\"personal\",\"plan_type\":\"pro\",\"workspace_backend_origin\":"
     "\"https://"
     "chatgpt.com\",\"account_routing_override\":\"us\"}],\"account_ordering\":["
     "\"" LOGIN_CODEX_ACCOUNT "\"],\"default_account_id\":\"" LOGIN_CODEX_ACCOUNT "\"}"},
    {"/wham/settings/user", "{}"},
};

bool gateway_login_answer(struct http_exchange *x) {
    const struct login_vendor *v = login_vendor_of(x->head);
    struct http_text path = x->head->path;
    for (size_t i = 0; v && i < sizeof(fixed_answers) / sizeof(*fixed_answers); i++) {
        size_t n = strlen(fixed_answers[i].end);
        const char *answer = fixed_answers[i].answer;
        if (v->codec != &model_responses || path.n < n ||
            memcmp(path.s + path.n - n, fixed_answers[i].end, n) != 0)
            continue;
        http_reply(x, 200, HTTP_FIELDS({"Content-Type", "application/json"}), answer,
                   strlen(answer));
        return true;
    }
    return false;
}

bool gateway_login_leaks(const struct forward *f) {
    const struct buf *b = &f->whole;
    if (!f->login || !b->data)
        return false;
    return (f->provider.key && secret_is_in(f->provider.key, b->data, b->len)) ||
           (f->login_account[0] &&
            memmem(b->data, b->len, f->login_account, strlen(f->login_account)));
}

/* Only the models of the vendor's answer reach the machine. False: it has none. */
bool gateway_login_cut_list(struct forward *f) {
    json_t *root DEFER(json_decrefp) =
        json_loadb(f->whole.data ? f->whole.data : "", f->whole.len, 0, NULL);
    json_t *models = json_object_get(root, "models");
    if (!json_is_array(models) || f->whole.len > LIST_MAX)
        return false;
    json_t *kept DEFER(json_decrefp) = json_pack("{s:O}", "models", models);
    char *text DEFER_FREE = kept ? json_dumps(kept, JSON_COMPACT) : NULL;
    buf_done(&f->whole);
    f->whole = BUF(GATEWAY_ANSWER_MAX);
    return text && buf_add(&f->whole, text, strlen(text));
}
