/*
 * The logins that were used since this process started, and their renewal.
 *
 * A refresh token works once, and the server's answer has the next one. So the renewals of a login
 * are serialised, and go through these stages:
 *
 *   PREPARING  write the secret as it is, marked, and flush it: a full disk is noticed now
 *   SENDING    ask the server; from here on the old refresh token may be void
 *   SAVING     write and flush the new tokens; they are used only afterwards
 *
 * If SAVING fails, the new tokens stay in memory, and the next call tries to write them again. If
 * the process dies between the answer and the end of SAVING, the login may be lost. The old access
 * token is used as long as it is valid, and the mark says later what happened.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/login.h"
#include "model/login.h"
#include "store/secrets.h"

/* The public name of Codex at the login server. */
#define CODEX_CLIENT "app_EMoamEEZ73f0CkXaXp7hrann"

enum {
    EARLY_S = 300,        /* a token is renewed this long before it ends */
    AGAIN_MS = 2000,      /* no renewal so soon after a failed one */
    REJECTED_MS = 60000,  /* a token that is rejected so soon after its renewal is not renewed */
    TOTAL_MS = 20000,     /* time for an answer of the server */
    ANSWER_MAX = 64 << 10 /* its size */
};

static const struct login_vendor vendors[] = {
    {.name = LOGIN_CLAUDE,
     .codec = &model_anthropic,
     .placeholder = LOGIN_CLAUDE_PLACEHOLDER,
     .fields = {"user-agent", "x-app", "anthropic-dangerous-direct-browser-access", NULL}},
    {.name = LOGIN_CODEX,
     .codec = &model_responses,
     .placeholder = LOGIN_CODEX_PLACEHOLDER,
     .fields = {"user-agent", "originator", "version", "session-id", "session_id", "thread-id",
                "x-client-request-id", "x-codex-beta-features", "x-codex-turn-metadata",
                "x-codex-turn-state", "x-codex-window-id", "x-openai-internal-codex-responses-lite",
                NULL}},
};
enum { VENDORS = sizeof(vendors) / sizeof(*vendors) };

const struct login_vendor *login_vendor_at(size_t i) {
    return i < VENDORS ? &vendors[i] : NULL;
}

const struct login_vendor *login_vendor_named(const char *name) {
    for (size_t i = 0; i < VENDORS; i++)
        if (strcmp(vendors[i].name, name) == 0)
            return &vendors[i];
    return NULL;
}

const struct login_vendor *login_vendor_of(const struct http_head *head) {
    static const char lead[] = "Bearer ";
    struct http_text value = http_field_only(head, "authorization");
    size_t n = strlen(lead);
    if (!value.s || value.n < n || strncasecmp(value.s, lead, n) != 0)
        return NULL;
    for (size_t i = 0; i < VENDORS; i++)
        if (http_text_is((struct http_text){value.s + n, value.n - n}, vendors[i].placeholder))
            return &vendors[i];
    return NULL;
}

const char *login_url(const struct conf *conf, const struct login_vendor *v) {
    return strcmp(v->name, LOGIN_CLAUDE) == 0 ? conf->login_claude_url : conf->login_codex_url;
}

/* ---- logins in memory ---- */

struct login_wait {
    struct login *login;
    struct login_wait *next;
    bool is_rejected; /* the present token was rejected, so it is of no use */
    login_fn *fn;
    void *arg;
};

enum login_stage { LOGIN_IDLE, LOGIN_PREPARING, LOGIN_SENDING, LOGIN_SAVING };

struct login {
    struct logins *all;
    struct store *store; /* for the job, which may outlive `all` */
    struct login *next;
    char owner[STORE_NAME_SIZE];
    const struct login_vendor *vendor;
    struct login_tokens tokens;
    struct login_tokens fresh; /* new tokens that are not on disk; access NULL: none */
    uint64_t version;
    uint64_t renewed_ms; /* 0: not by this process */
    bool was_cut;        /* a process before this one died while it renewed the login */
    bool is_over;        /* the owner must log in again: `why` */
    bool is_rejected;    /* the vendor rejected the last token: `why` */
    uint64_t failed_ms;  /* time of the last failed renewal: `why`; 0: none */
    struct err why;
    enum login_stage stage;
    bool is_dead; /* forgotten; freed once its job has ended */
    struct fetch *fetch;
    int status;
    struct buf answer;
    bool job_failed;
    struct err job_err;
    struct login_wait *waits;
};

struct logins {
    struct logins_config config;
    struct login *list;
    uint64_t versions;
};

struct logins *logins_new(const struct logins_config *config) {
    struct logins *l = xnew(struct logins);
    l->config = *config;
    return l;
}

static void login_free(struct login *l) {
    if (l->fetch)
        fetch_cancel(l->fetch);
    login_tokens_done(&l->tokens);
    login_tokens_done(&l->fresh);
    secret_wipe(&l->answer);
    free(l);
}

/* Frees the login now, or when its job has ended. */
static void login_drop(struct login *l) {
    l->is_dead = true;
    if (l->stage != LOGIN_PREPARING && l->stage != LOGIN_SAVING)
        login_free(l);
}

void logins_free(struct logins *all) {
    if (!all)
        return;
    while (all->list) {
        struct login *l = all->list;
        all->list = l->next;
        while (l->waits)
            login_wait_cancel(l->waits);
        login_drop(l);
    }
    free(all);
}

static struct login *login_find(const struct logins *all, const char *owner,
                                const struct login_vendor *v) {
    struct login *l = all->list;
    while (l && (l->vendor != v || strcmp(l->owner, owner) != 0))
        l = l->next;
    return l;
}

static void secret_name(const struct login_vendor *v, char ret[STORE_NAME_SIZE]) {
    snprintf(ret, STORE_NAME_SIZE, LOGIN_SECRET "%s", v->name);
}

static int login_load(struct logins *all, const char *owner, const struct login_vendor *v,
                      struct login **ret, struct err *err) {
    char name[STORE_NAME_SIZE];
    struct secret *kept DEFER(secret_freep) = NULL;
    struct buf text DEFER(secret_wipe) = BUF(SECRET_MAX + 1);
    struct login_tokens tokens = {0};
    secret_name(v, name);
    if (store_secret_get(all->config.store, owner, name, &kept, err) < 0) {
        err_set(err, ERR_DENIED, "the owner of this machine is not logged in to '%s'", v->name);
        return err_remedy(err, "the owner logs in: carrel login %s", v->name);
    }
    if (!secret_reveal(kept, &text) || login_read_kept(v, text.data, text.len, &tokens, err) < 0)
        return -1;
    struct login *l = xnew(struct login);
    *l = (struct login){.all = all,
                        .store = all->config.store,
                        .next = all->list,
                        .vendor = v,
                        .tokens = tokens,
                        .version = ++all->versions,
                        .was_cut = tokens.is_renewing,
                        .answer = BUF(ANSWER_MAX)};
    snprintf(l->owner, sizeof(l->owner), "%s", owner);
    all->list = *ret = l;
    return 0;
}

static int login_put(const struct login *l, const struct login_tokens *t, struct err *err) {
    char name[STORE_NAME_SIZE];
    struct secret *kept DEFER(secret_freep) = login_keep(l->vendor, t);
    secret_name(l->vendor, name);
    if (!kept)
        return err_set(err, ERR_UNKNOWN, "the tokens of login '%s' are too long", l->vendor->name);
    return store_secret_put(l->all->config.store, l->owner, name, kept, wall_ms(), err);
}

/* ---- answers ---- */

static int64_t left_s(const struct login *l) {
    return l->tokens.expires_s ? l->tokens.expires_s - wall_ms() / 1000 : INT64_MAX;
}

static void login_give(struct login *l, login_fn *fn, void *arg) {
    char name[STORE_NAME_SIZE];
    const struct login_ticket ticket = {l->tokens.access, l->tokens.account, l->version};
    l->is_rejected = false;
    secret_name(l->vendor, name);
    store_secret_used(l->all->config.store, l->owner, name, wall_ms());
    fn(arg, &ticket, NULL);
}

/* Answers all who wait, after a renewal has ended. */
static void login_tell(struct login *l, const struct err *failed) {
    struct login_wait *w;
    l->stage = LOGIN_IDLE;
    while ((w = l->waits)) {
        l->waits = w->next;
        if (failed && (l->is_over || w->is_rejected || left_s(l) <= 0))
            w->fn(w->arg, NULL, failed);
        else
            login_give(l, w->fn, w->arg);
        free(w);
    }
}

static void renew_failed(struct login *l, const struct err *err) {
    const struct err why = *err;
    l->why = why;
    l->failed_ms = monotonic_ms();
    login_tell(l, &why);
}

/* The refresh token will never work again. */
static void renew_refused(struct login *l) {
    struct err err;
    l->is_over = true;
    err_set(&err, ERR_DENIED, "the login '%s' has ended%s", l->vendor->name,
            l->was_cut ? ", because a renewal was interrupted" : "");
    err_remedy(&err, "the owner logs in again: carrel login %s", l->vendor->name);
    renew_failed(l, &err);
}

/* ---- renewal ---- */

static void renew_flush(void *arg) {
    struct login *l = arg;
    l->job_failed = store_flush(l->store, &l->job_err) < 0;
}

static void renew_saved(void *arg) {
    struct login *l = arg;
    if (l->is_dead) {
        login_free(l);
        return;
    }
    if (l->job_failed) {
        renew_failed(l, &l->job_err);
        return;
    }
    login_tokens_done(&l->tokens);
    l->tokens = l->fresh;
    l->fresh = (struct login_tokens){0};
    l->version = ++l->all->versions;
    l->renewed_ms = monotonic_ms();
    l->failed_ms = 0;
    l->was_cut = l->is_rejected = false;
    login_tell(l, NULL);
}

static void renew_save(struct login *l) {
    struct err err;
    l->stage = LOGIN_SAVING;
    if (login_put(l, &l->fresh, &err) < 0)
        renew_failed(l, &err);
    else
        loop_work(l->all->config.loop, renew_flush, renew_saved, l);
}

static void renew_on_head(void *arg, const struct fetch *f, int status) {
    struct login *l = arg;
    (void)f;
    l->status = status;
}

static bool renew_on_bytes(void *arg, const char *bytes, size_t n) {
    struct login *l = arg;
    return buf_add(&l->answer, bytes, n);
}

static void renew_on_end(void *arg, enum fetch_end end, const char *why) {
    struct login *l = arg;
    struct err err = {0};
    l->fetch = NULL;
    const char *text = l->answer.data ? l->answer.data : "";
    if (end != FETCH_DONE)
        err_set(&err, ERR_UNKNOWN, "cannot renew login '%s': %.100s", l->vendor->name, why);
    else if (l->status == 200)
        (void)login_read_renewed(&l->tokens, text, l->answer.len, &l->fresh, &err);
    else if (!login_is_refused(l->status, text, l->answer.len))
        err_set(&err, ERR_UNKNOWN,
                "cannot renew login '%s': the login server answered with status %d",
                l->vendor->name, l->status);
    secret_wipe(&l->answer);
    l->answer = BUF(ANSWER_MAX);
    if (err.code)
        renew_failed(l, &err);
    else if (l->fresh.access)
        renew_save(l);
    else
        renew_refused(l);
}

static int renew_send(struct login *l, struct err *err) {
    static const struct fetch_events events = {renew_on_head, renew_on_bytes, renew_on_end};
    struct buf token DEFER(secret_wipe) = BUF(SECRET_MAX + 1);
    if (!secret_reveal(l->tokens.refresh, &token))
        return err_set(err, ERR_INTERNAL, "the refresh token is too long");
    json_t *root DEFER(json_decrefp) =
        json_pack("{s:s, s:s, s:s}", "client_id", CODEX_CLIENT, "grant_type", "refresh_token",
                  "refresh_token", token.data);
    char *body DEFER_FREE = root ? json_dumps(root, JSON_COMPACT) : NULL;
    if (!body)
        return err_set(err, ERR_INTERNAL, "the request to the login server cannot be written");
    const struct fetch_request r = {
        .method = "POST",
        .url = l->all->config.conf->login_codex_token_url,
        .fields = HTTP_FIELDS({"Content-Type", "application/json"}, {"Accept", "application/json"}),
        .body = body,
        .n = strlen(body),
        .total_ms = TOTAL_MS,
        .max_bytes = ANSWER_MAX,
    };
    l->status = 0;
    int status = fetch_start(l->all->config.fetcher, &r, &events, l, &l->fetch, err);
    explicit_bzero(body, strlen(body));
    return status;
}

static void renew_prepared(void *arg) {
    struct login *l = arg;
    struct err err;
    if (l->is_dead) {
        login_free(l);
        return;
    }
    l->stage = LOGIN_SENDING;
    if (l->job_failed)
        renew_failed(l, &l->job_err);
    else if (renew_send(l, &err) < 0)
        renew_failed(l, &err);
}

static void renew_start(struct login *l) {
    struct err err;
    if (l->fresh.access) {
        renew_save(l);
        return;
    }
    l->stage = LOGIN_PREPARING;
    l->tokens.is_renewing = true;
    if (login_put(l, &l->tokens, &err) < 0)
        renew_failed(l, &err);
    else
        loop_work(l->all->config.loop, renew_flush, renew_prepared, l);
}

/* ---- requests ---- */

/* The vendor rejected the present token. True: nothing can be done about it. */
static bool is_hopeless(struct login *l) {
    bool is_young = l->renewed_ms && monotonic_ms() - l->renewed_ms < REJECTED_MS;
    if (l->tokens.refresh && !is_young)
        return false;
    l->is_rejected = true;
    err_set(&l->why, ERR_DENIED, "the vendor rejected the login '%s'%s", l->vendor->name,
            is_young ? ", also after it was renewed" : "");
    err_remedy(&l->why, "the owner logs in again: carrel login %s", l->vendor->name);
    return true;
}

/* Whether the login failed so recently that it is not renewed now. */
static bool is_resting(const struct login *l) {
    return l->stage == LOGIN_IDLE && l->failed_ms && monotonic_ms() - l->failed_ms < AGAIN_MS;
}

static struct login_wait *wait_add(struct login *l, bool is_rejected, login_fn *fn, void *arg) {
    struct login_wait *w = xnew(struct login_wait), **end = &l->waits;
    *w = (struct login_wait){.login = l, .is_rejected = is_rejected, .fn = fn, .arg = arg};
    while (*end)
        end = &(*end)->next;
    *end = w;
    return w;
}

void logins_ask(struct logins *all, const char *owner, const struct login_vendor *v,
                uint64_t rejected, login_fn *fn, void *arg, struct login_wait **ret) {
    struct login *l = login_find(all, owner, v);
    struct err err;
    *ret = NULL;
    if (!l && login_load(all, owner, v, &l, &err) < 0) {
        fn(arg, NULL, &err);
        return;
    }
    bool is_rejected = rejected == l->version;
    bool is_due = is_rejected || l->fresh.access || (l->tokens.refresh && left_s(l) < EARLY_S);
    if (l->is_over || (is_rejected && l->stage == LOGIN_IDLE && is_hopeless(l))) {
        err = l->why;
        fn(arg, NULL, &err);
    } else if (is_due && is_resting(l) && (is_rejected || left_s(l) <= 0)) {
        err = l->why;
        fn(arg, NULL, &err);
    } else if (!is_due || is_resting(l)) {
        login_give(l, fn, arg);
    } else {
        /* renew_start() may end at once, and then calls fn: *ret must not be set after it. */
        *ret = wait_add(l, is_rejected, fn, arg);
        if (l->stage == LOGIN_IDLE)
            renew_start(l);
    }
}

void login_wait_cancel(struct login_wait *w) {
    if (!w)
        return;
    struct login_wait **at = &w->login->waits;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    free(w);
}

void logins_forget(struct logins *all, const char *owner, const struct login_vendor *v) {
    struct login *l = login_find(all, owner, v), **at = &all->list;
    struct login_wait *w;
    struct err err;
    if (!l)
        return;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    err_set(&err, ERR_BUSY, "the login '%s' was changed", v->name);
    while ((w = l->waits)) {
        l->waits = w->next;
        w->fn(w->arg, NULL, &err);
        free(w);
    }
    login_drop(l);
}

const char *logins_complaint(const struct logins *all, const char *owner,
                             const struct login_vendor *v) {
    const struct login *l = login_find(all, owner, v);
    return l && (l->is_over || l->is_rejected || l->failed_ms) ? l->why.text : NULL;
}
