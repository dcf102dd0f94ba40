/*
 * Subscription logins of owners: stored as secrets, granted to machines one by one, and used only
 * by the gateway. A machine never gets a token.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/jot.h"
#include "service/grants/kinds.h"
#include "service/models/inner.h"
#include "service/net/live.h"
#include "service/net/secrets.h"
#include "service/rights.h"
#include "store/secrets.h"

static const struct login_vendor *vendor_find(const char *name, struct err *err) {
    const struct login_vendor *v = login_vendor_named(name);
    if (v)
        return v;
    err_set(err, ERR_INVALID, "there are no logins of '%.40s'", name);
    err_remedy(err, "use claude or codex; for other vendors, use an API key");
    return NULL;
}

/* ---- verbs ---- */

void service_login_set(struct service *s, const struct caller *who, const char *name,
                       const struct login_request *r, service_done_fn *done, void *arg) {
    struct login_tokens tokens DEFER(login_tokens_done) = {0};
    struct secret *value DEFER(secret_freep) = NULL;
    struct err err;
    const struct login_vendor *v = vendor_find(name, &err);
    if (!v || login_read_given(v, r->value, strlen(r->value), &tokens, &err) < 0) {
        done(arg, &err);
        return;
    }
    value = login_keep(v, &tokens);
    const struct secret_change change = {"login.set", LOGIN_SECRET, v->name, value};
    if (!value)
        err_set(&err, ERR_LIMIT, "the tokens of the login are too long");
    if (!value || secrets_keep(s, who, &change, done, arg, &err) < 0)
        done(arg, &err);
    else
        logins_forget(models_logins(s), who->owner, v);
}

void service_login_remove(struct service *s, const struct caller *who, const char *name,
                          service_done_fn *done, void *arg) {
    struct err err;
    const struct login_vendor *v = vendor_find(name, &err);
    char kept[STORE_NAME_SIZE];
    snprintf(kept, sizeof(kept), LOGIN_SECRET "%s", v ? v->name : "");
    const struct secret_change change = {"login.remove", LOGIN_SECRET, v ? v->name : "", NULL};
    if (v && authorise(who, RIGHT_SECRET, &err) == 0 &&
        !store_secret_exists(s->store, who->owner, kept)) {
        err_set(&err, ERR_NOT_FOUND, "login '%s' does not exist", v->name);
        v = NULL;
    }
    if (!v || secrets_keep(s, who, &change, done, arg, &err) < 0)
        done(arg, &err);
    else
        logins_forget(models_logins(s), who->owner, v);
}

/* The end of the present access token; 0: unknown. */
static int64_t login_expires_ms(struct service *s, const char *owner, const char *kept,
                                const struct login_vendor *v) {
    struct secret *value DEFER(secret_freep) = NULL;
    struct buf text DEFER(secret_wipe) = BUF(SECRET_MAX + 1);
    struct login_tokens tokens DEFER(login_tokens_done) = {0};
    struct err none;
    if (store_secret_get(s->store, owner, kept, &value, &none) < 0 ||
        !secret_reveal(value, &text) || login_read_kept(v, text.data, text.len, &tokens, &none) < 0)
        return 0;
    return tokens.expires_s * 1000;
}

static void put_login(struct service *s, const char *owner, const struct secret_row *row,
                      struct jot *j) {
    const struct login_vendor *v = login_vendor_named(row->name + strlen(LOGIN_SECRET));
    const char *problem = v ? logins_complaint(models_logins(s), owner, v) : NULL;
    int64_t expires_ms = v ? login_expires_ms(s, owner, row->name, v) : 0;
    if (expires_ms)
        jot_i64(j, "expires_ms", expires_ms);
    if (problem)
        jot_string(j, "problem", problem);
}

void service_login_list(struct service *s, const struct caller *who, service_net_fn *done,
                        void *arg) {
    static const struct secret_listing listing = {"logins", LOGIN_SECRET, put_login};
    secrets_list(s, who, &listing, done, arg);
}

/* ---- grants ---- */

static int login_grant_read(struct service *s, const char *owner, const struct grant_request *r,
                            struct grant_row *row, struct err *err) {
    char kept[STORE_NAME_SIZE];
    const struct login_vendor *v = vendor_find(r->what, err);
    if (!v)
        return -1;
    snprintf(kept, sizeof(kept), LOGIN_SECRET "%s", v->name);
    if (!store_secret_exists(s->store, owner, kept)) {
        err_set(err, ERR_NOT_FOUND, "login '%s' does not exist", v->name);
        return err_remedy(err, "log in first: carrel login %s", v->name);
    }
    row->what = xstrdup(v->name);
    return 0;
}

static void login_grant_give(struct live *l, const struct grant_row *row, int fd,
                             service_done_fn *done, void *arg) {
    (void)l, (void)row, (void)fd;
    done(arg, NULL);
}

static void login_grant_take(struct live *l, const struct grant_row *row, service_done_fn *done,
                             void *arg) {
    (void)l, (void)row;
    done(arg, NULL);
}

/* The row alone counts: models_login() looks for it at every request. */
const struct grant_kind grant_login = {.name = "login",
                                       .inherited = true,
                                       .read = login_grant_read,
                                       .give = login_grant_give,
                                       .take = login_grant_take};

int models_login(void *arg, const char *account, const char *vendor, char owner[STORE_NAME_SIZE],
                 struct err *err) {
    struct service *s = arg;
    const char *id = strncmp(account, "machine:", 8) == 0 ? account + 8 : "";
    const struct live *l = map_get(&s->machines, id);
    struct grant_list list DEFER(grant_list_done) = {0};
    if (!l)
        return err_set(err, ERR_GONE, "the machine has ended");
    if (store_grant_list(s->store, id, "login", &list, err) < 0)
        return -1;
    for (size_t i = 0; i < list.count; i++)
        if (strcmp(list.rows[i].what, vendor) == 0) {
            snprintf(owner, STORE_NAME_SIZE, "%s", l->row.owner);
            return 0;
        }
    err_set(err, ERR_DENIED, "this machine may not use the login '%s'", vendor);
    return err_remedy(err, "the owner starts the agent with --login");
}
