/*
 * Reads logins: the text that the owner gives, the secret that keeps it, and the answers of the
 * vendor's server. Every text may be hostile. No error contains a part of a text.
 */
#include <jansson.h>
#include <string.h>
#include <strings.h>

#include "base/defer.h"
#include "base/login.h"
#include "base/text/base64.h"
#include "model/json.h"
#include "model/login.h"

enum { TOKEN_MIN = 16, ACCESS_MAX = 5000, REFRESH_MAX = 2048, CLAIMS_MAX = 6144 };

void login_tokens_done(struct login_tokens *t) {
    secret_free(t->access);
    secret_free(t->refresh);
    *t = (struct login_tokens){0};
}

/* A token is one word of visible ASCII characters. */
static struct secret *token_new(const char *text, size_t n, size_t max) {
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return NULL;
    return n >= TOKEN_MIN && n <= max ? secret_new(text, n) : NULL;
}

static struct secret *token_member(const json_t *object, const char *name, size_t max) {
    const json_t *value = json_object_get(object, name);
    return json_is_string(value)
               ? token_new(json_string_value(value), json_string_length(value), max)
               : NULL;
}

/* An account becomes the value of a field. */
static void take_account(char ret[LOGIN_ACCOUNT_SIZE], const char *text) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:";
    size_t n = text ? strlen(text) : 0;
    if (n > 0 && n < LOGIN_ACCOUNT_SIZE && strspn(text, allowed) == n)
        memcpy(ret, text, n + 1);
}

/* ---- JWT ---- */

/* The claims of a token that is a JWT; NULL: it is not one. The signature is not checked. */
static json_t *token_claims(const struct secret *token) {
    struct buf text DEFER(secret_wipe) = BUF(SECRET_MAX + 1);
    char in[CLAIMS_MAX + 4], out[CLAIMS_MAX];
    size_t n = 0, len = 0;
    if (!token || !secret_reveal(token, &text))
        return NULL;
    const char *at = memchr(text.data, '.', text.len);
    const char *end = at ? memchr(at + 1, '.', (size_t)(text.data + text.len - at - 1)) : NULL;
    if (!end || end - at - 1 > CLAIMS_MAX)
        return NULL;
    for (at++; at < end; at++)
        in[n++] = *at == '-' ? '+' : *at == '_' ? '/' : *at;
    while (n % 4)
        in[n++] = '=';
    json_t *claims = base64_decode(in, n, out, &len) ? json_loadb(out, len, 0, NULL) : NULL;
    explicit_bzero(in, sizeof(in));
    explicit_bzero(out, sizeof(out));
    return claims;
}

static void take_claims(struct login_tokens *t) {
    json_t *claims DEFER(json_decrefp) = token_claims(t->access);
    const json_t *exp = json_object_get(claims, "exp");
    const json_t *auth = json_object_get(claims, "https://api.openai.com/auth");
    json_int_t end = json_is_integer(exp) ? json_integer_value(exp) : 0;
    t->expires_s = end > 0 && end < (json_int_t)1 << 40 ? end : 0;
    if (!t->account[0])
        take_account(t->account, json_member(auth, "chatgpt_account_id"));
}

/* ---- the owner's text ---- */

static int read_claude(const char *text, size_t n, struct login_tokens *ret, struct err *err) {
    while (n > 0 && strchr(" \t\r\n", text[n - 1]))
        n--;
    if (n >= 10 && memcmp(text, "sk-ant-api", 10) == 0) {
        err_set(err, ERR_INVALID, "this is an API key, not the token of a login");
        return err_remedy(err, "use it as a key: see docs/reference/models.md");
    }
    bool is_token = n > 10 && memcmp(text, "sk-ant-oat", 10) == 0;
    bool is_placeholder =
        n == strlen(LOGIN_CLAUDE_PLACEHOLDER) && memcmp(text, LOGIN_CLAUDE_PLACEHOLDER, n) == 0;
    ret->access = is_token && !is_placeholder ? token_new(text, n, ACCESS_MAX) : NULL;
    if (ret->access)
        return 0;
    err_set(err, ERR_INVALID, "this is not a token of Claude");
    return err_remedy(err, "run claude setup-token, and give the token that it prints");
}

static int read_codex(const char *text, size_t n, struct login_tokens *ret, struct err *err) {
    json_t *root DEFER(json_decrefp) = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *tokens = json_object_get(root, "tokens");
    ret->access = token_member(tokens, "access_token", ACCESS_MAX);
    ret->refresh = token_member(tokens, "refresh_token", REFRESH_MAX);
    take_account(ret->account, json_member(tokens, "account_id"));
    take_claims(ret);
    bool is_placeholder = ret->access && secret_is_in(ret->access, LOGIN_CODEX_PLACEHOLDER,
                                                      strlen(LOGIN_CODEX_PLACEHOLDER));
    if (ret->access && ret->refresh && ret->account[0] && !is_placeholder)
        return 0;
    err_set(err, ERR_INVALID, "this is not the file auth.json of a ChatGPT login of Codex");
    return err_remedy(err, "run CODEX_HOME=DIR codex login, and give the file DIR/auth.json");
}

int login_read_given(const struct login_vendor *v, const char *text, size_t n,
                     struct login_tokens *ret, struct err *err) {
    struct login_tokens t DEFER(login_tokens_done) = {0};
    bool is_claude = strcmp(v->name, LOGIN_CLAUDE) == 0;
    if (n > LOGIN_TEXT_MAX)
        return err_set(err, ERR_LIMIT, "the login is longer than %d bytes", LOGIN_TEXT_MAX);
    if ((is_claude ? read_claude : read_codex)(text, n, &t, err) < 0)
        return -1;
    *ret = t;
    t = (struct login_tokens){0};
    return 0;
}

/* ---- the secret ---- */

int login_read_kept(const struct login_vendor *v, const char *text, size_t n,
                    struct login_tokens *ret, struct err *err) {
    struct login_tokens t DEFER(login_tokens_done) = {0};
    json_t *root DEFER(json_decrefp) = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    t.access = token_member(root, "access", ACCESS_MAX);
    t.refresh = token_member(root, "refresh", REFRESH_MAX);
    t.is_renewing = json_is_true(json_object_get(root, "renewing"));
    take_account(t.account, json_member(root, "account"));
    take_claims(&t);
    if (!t.access) {
        err_set(err, ERR_DENIED, "the stored login '%s' is not valid", v->name);
        return err_remedy(err, "log in again: carrel login %s", v->name);
    }
    *ret = t;
    t = (struct login_tokens){0};
    return 0;
}

static bool put_token(json_t *root, const char *name, const struct secret *value) {
    struct buf text DEFER(secret_wipe) = BUF(SECRET_MAX + 1);
    return !value || (secret_reveal(value, &text) &&
                      json_object_set_new(root, name, json_stringn(text.data, text.len)) == 0);
}

struct secret *login_keep(const struct login_vendor *v, const struct login_tokens *t) {
    json_t *root DEFER(json_decrefp) = json_object();
    (void)v;
    if (!put_token(root, "access", t->access) || !put_token(root, "refresh", t->refresh))
        return NULL;
    if (t->account[0])
        json_object_set_new(root, "account", json_string(t->account));
    if (t->is_renewing)
        json_object_set_new(root, "renewing", json_true());
    char *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    struct secret *kept = text ? secret_new(text, strlen(text)) : NULL;
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
    return kept;
}

/* ---- answers of the server ---- */

int login_read_renewed(const struct login_tokens *before, const char *text, size_t n,
                       struct login_tokens *ret, struct err *err) {
    struct login_tokens t DEFER(login_tokens_done) = {0};
    json_t *root DEFER(json_decrefp) = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    t.access = token_member(root, "access_token", ACCESS_MAX);
    t.refresh = token_member(root, "refresh_token", REFRESH_MAX);
    if (!t.access || (json_object_get(root, "refresh_token") && !t.refresh))
        return err_set(err, ERR_UNKNOWN, "the answer of the login server has no valid tokens");
    if (!t.refresh)
        t.refresh = secret_copy(before->refresh);
    /* The account stays the one that the owner chose. */
    memcpy(t.account, before->account, sizeof(t.account));
    take_claims(&t);
    *ret = t;
    t = (struct login_tokens){0};
    return 0;
}

bool login_is_refused(int status, const char *text, size_t n) {
    static const char *const codes[] = {"invalid_grant", "refresh_token_expired",
                                        "refresh_token_reused", "refresh_token_invalidated"};
    json_t *root DEFER(json_decrefp) = json_loadb(text, n, 0, NULL);
    const json_t *error = json_object_get(root, "error");
    const char *code =
        json_is_string(error) ? json_string_value(error) : json_member(error, "code");
    if (!code)
        code = json_member(root, "code");
    for (size_t i = 0; code && i < sizeof(codes) / sizeof(*codes); i++)
        if (strcasecmp(codes[i], code) == 0 && status >= 400 && status < 500)
            return true;
    return status == 401;
}
