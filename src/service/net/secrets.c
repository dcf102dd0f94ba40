#include "service/net/secrets.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "model/login.h"
#include "service/grants/kinds.h"
#include "service/grants/live.h"
#include "service/net/inner.h"
#include "service/rights.h"
#include "store/databases.h"
#include "store/secrets.h"

enum { LIST_MAX_BYTES = 1 << 20 };

/* ---- secrets of an owner ---- */

/* A request that changes a secret. It is answered once the change is on disk. */
struct keeping {
    struct service *service;
    struct caller who;
    const char *verb;
    char detail[SECRET_NAME_SIZE + 48];
    uint64_t intent;
    service_done_fn *done;
    void *arg;
    bool failed;
    struct err err;
};

static void secrets_flush(void *arg) {
    struct keeping *k = arg;
    k->failed = store_flush(k->service->store, &k->err) < 0;
}

static void secrets_flushed(void *arg) {
    struct keeping *k = arg;
    const struct err *err = k->failed ? &k->err : NULL;
    const struct journal_record what = {.verb = k->verb, .detail = k->detail};
    note_result(k->service, &k->who, &what, k->intent, err);
    k->done(k->arg, err);
    free(k);
}

static int check_name(const char *name, struct err *err) {
    if (secret_name_ok(name))
        return 0;
    err_set(err, ERR_INVALID, "'%.70s' is not a valid name of a secret", name);
    return err_remedy(err,
                      "use letters, digits and '_', as in the name of an environment variable");
}

static struct keeping *keep_begin(struct service *s, const struct caller *who, const char *verb,
                                  const char *name, const char *plain, struct err *err) {
    struct keeping *k = xnew(struct keeping);
    *k = (struct keeping){.service = s, .who = *who, .verb = verb};
    if (authorise(who, RIGHT_SECRET, err) == 0 && check_name(plain, err) == 0) {
        snprintf(k->detail, sizeof(k->detail), "{\"secret\":\"%s\"}", name);
        const struct journal_record what = {.verb = verb, .detail = k->detail};
        if (note_intent(s, who, &what, &k->intent, err) == 0)
            return k;
    }
    free(k);
    return NULL;
}

static void keep_end(struct keeping *k, int status, const struct err *err, service_done_fn *done,
                     void *arg) {
    struct service *s = k->service;
    if (status == 0) {
        k->done = done;
        k->arg = arg;
        loop_work(s->loop, secrets_flush, secrets_flushed, k);
        return;
    }
    const struct journal_record what = {.verb = k->verb, .detail = k->detail};
    note_result(s, &k->who, &what, k->intent, err);
    done(arg, err);
    free(k);
}

static struct secret *read_value(const char *text, struct err *err) {
    size_t n = strlen(text);
    struct secret *value = n >= SECRET_VALUE_MIN ? secret_new(text, n) : NULL;
    if (!value) {
        err_set(err, ERR_INVALID, "the value of the secret is not valid");
        err_remedy(err, "use a value of one line and %d to %d bytes", SECRET_VALUE_MIN, SECRET_MAX);
    }
    return value;
}

void service_secret_set(struct service *s, const struct caller *who, const char *name,
                        const struct secret_request *r, service_done_fn *done, void *arg) {
    struct err err;
    struct secret *value DEFER(secret_freep) = read_value(r->value, &err);
    struct keeping *k = value ? keep_begin(s, who, "secret.set", name, name, &err) : NULL;
    if (!k) {
        done(arg, &err);
        return;
    }
    int status = store_secret_put(s->store, who->owner, name, value, wall_ms(), &err);
    if (status == 0)
        databases_again(s);
    keep_end(k, status, &err, done, arg);
}

void service_secret_remove(struct service *s, const struct caller *who, const char *name,
                           service_done_fn *done, void *arg) {
    struct err err;
    /* Also deletes the key of an identity (grants/identity.c). */
    const char *plain = strncmp(name, "identity.", 9) == 0 ? name + 9 : name;
    struct keeping *k = keep_begin(s, who, "secret.remove", name, plain, &err);
    if (!k)
        done(arg, &err);
    else
        keep_end(k, store_secret_remove(s->store, who->owner, name, &err), &err, done, arg);
}

int secrets_keep(struct service *s, const struct caller *who, const struct secret_change *c,
                 service_done_fn *done, void *arg, struct err *err) {
    char name[STORE_NAME_SIZE];
    struct err why;
    snprintf(name, sizeof(name), "%s%s", c->prefix, c->plain);
    struct keeping *k = keep_begin(s, who, c->verb, name, c->plain, err);
    if (!k)
        return -1;
    int status = c->value ? store_secret_put(s->store, who->owner, name, c->value, wall_ms(), &why)
                          : store_secret_remove(s->store, who->owner, name, &why);
    keep_end(k, status, &why, done, arg);
    return 0;
}

/* Secrets of Carrel itself: databases and logins are listed elsewhere. */
static bool is_own(const char *name) {
    return strncmp(name, DATABASE_SECRET, strlen(DATABASE_SECRET)) == 0 ||
           strncmp(name, LOGIN_SECRET, strlen(LOGIN_SECRET)) == 0;
}

static bool is_listed(const struct secret_listing *l, const char *name) {
    return l->prefix ? strncmp(name, l->prefix, strlen(l->prefix)) == 0 : !is_own(name);
}

static void put_secret(struct service *s, const char *owner, const struct secret_listing *l,
                       const struct secret_row *row, struct jot *j) {
    jot_object(j, NULL);
    jot_string(j, "name", row->name + (l->prefix ? strlen(l->prefix) : 0));
    jot_i64(j, "created_ms", row->created_ms);
    jot_i64(j, "changed_ms", row->changed_ms);
    if (row->used_ms)
        jot_i64(j, "used_ms", row->used_ms);
    if (l->more)
        l->more(s, owner, row, j);
    jot_end(j, '}');
}

void secrets_list(struct service *s, const struct caller *who, const struct secret_listing *l,
                  service_net_fn *done, void *arg) {
    struct buf text DEFER(buf_done) = BUF(LIST_MAX_BYTES);
    struct jot j = JOT(&text);
    struct secret_list list DEFER(secret_list_done) = {0};
    struct err err;
    if (allow(who, SCOPE_READ, &err) < 0 ||
        store_secret_list(s->store, who->owner, &list, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    jot_object(&j, NULL);
    jot_array(&j, l->member);
    for (size_t i = 0; i < list.count; i++)
        if (is_listed(l, list.rows[i].name))
            put_secret(s, who->owner, l, &list.rows[i], &j);
    jot_end(&j, ']');
    jot_end(&j, '}');
    done(arg, text.data, NULL);
}

void service_secret_list(struct service *s, const struct caller *who, service_net_fn *done,
                         void *arg) {
    static const struct secret_listing listing = {.member = "secrets"};
    secrets_list(s, who, &listing, done, arg);
}

struct secret *secrets_value(struct service *s, const char *machine, const char *name) {
    const struct live *l = map_get(&s->machines, machine);
    struct secret *value = NULL;
    struct err err;
    if (!l)
        return NULL;
    if (store_secret_get(s->store, l->row.owner, name, &value, &err) < 0 &&
        err.code != ERR_NOT_FOUND)
        log_line(LOG_ERROR, "service", "read a secret for a machine: %s id=%s", err.text, machine);
    return value;
}

void secrets_used(struct live *l, const char *name) {
    store_secret_used(l->service->store, l->row.owner, name, wall_ms());
}

/* ---- grants of secrets to machines ---- */

static int secret_read(struct service *s, const char *owner, const struct grant_request *r,
                       struct grant_row *row, struct err *err) {
    enum secret_way way = SECRET_HEADER;
    char host[NAME_SIZE];
    if (check_name(r->what, err) < 0 || (r->mode && secret_way_parse(r->mode, &way, err) < 0))
        return -1;
    if (!r->at || !name_read(r->at, strlen(r->at), host)) {
        err_set(err, ERR_INVALID, "'%.80s' is not a valid host name", r->at ? r->at : "");
        return err_remedy(err, "a secret is granted for one host: NAME@api.example.com");
    }
    if (!store_secret_exists(s->store, owner, r->what)) {
        err_set(err, ERR_NOT_FOUND, "secret '%s' does not exist", r->what);
        return err_remedy(err, "set the secret first: carrel secret set %s", r->what);
    }
    row->what = xstrdup(r->what);
    row->place = xstrdup(host);
    snprintf(row->mode, sizeof(row->mode), "%s", secret_way_name(way));
    return 0;
}

/*
 * Completes a new grant. All grants of a secret in one machine share one placeholder (the text that
 * the machine gets instead of the value). A second grant for the same host replaces the first, so
 * it does not count against the limit.
 */
static int secret_settle(struct live *l, struct grant_row *row, struct err *err) {
    struct grant_list list DEFER(grant_list_done) = {0};
    char placeholder[PLACEHOLDER_SIZE];
    bool is_new = true;
    if (store_grant_list(l->service->store, l->row.id, "secret", &list, err) < 0)
        return -1;
    for (size_t i = 0; i < list.count; i++) {
        if (strcmp(list.rows[i].what, row->what) != 0)
            continue;
        if (!row->detail)
            row->detail = xstrdup(list.rows[i].detail);
        is_new &= strcmp(list.rows[i].place, row->place) != 0;
    }
    if (is_new && list.count >= SECRET_GRANTS_MAX)
        return err_set(err, ERR_LIMIT, "a machine can have at most %d grants of secrets",
                       SECRET_GRANTS_MAX);
    if (row->detail)
        return 0;
    placeholder_make(placeholder);
    row->detail = xformat("{\"placeholder\":\"%s\"}", placeholder);
    return 0;
}

/* The gate terminates TLS to put the secret into requests, so the machine must trust the gate's
 * certificate authority. */
static void secret_give(struct live *l, const struct grant_row *row, int fd, service_done_fn *done,
                        void *arg) {
    (void)row, (void)fd;
    secrets_restore(l);
    net_trust(l, done, arg);
}

/* Does nothing here: the caller deletes the row and then updates the gate, so the grant ends with
 * the next request. */
static void secret_take(struct live *l, const struct grant_row *row, service_done_fn *done,
                        void *arg) {
    (void)l, (void)row;
    done(arg, NULL);
}

const struct grant_kind grant_secret = {.name = "secret",
                                        .inherited = true,
                                        .read = secret_read,
                                        .settle = secret_settle,
                                        .give = secret_give,
                                        .take = secret_take};

static bool read_placeholder(const char *detail, char ret[PLACEHOLDER_SIZE]) {
    json_t *json = detail ? json_loads(detail, 0, NULL) : NULL;
    const char *text = json_string_value(json_object_get(json, "placeholder"));
    bool ok = text && strlen(text) < PLACEHOLDER_SIZE;
    snprintf(ret, PLACEHOLDER_SIZE, "%s", ok ? text : "");
    json_decref(json);
    return ok;
}

void secrets_restore(struct live *l) {
    struct secret_grants all = {.count = 0};
    struct grant_list list DEFER(grant_list_done) = {0};
    struct err err;
    if (store_grant_list(l->service->store, l->row.id, "secret", &list, &err) < 0)
        log_line(LOG_ERROR, "service", "list the secrets that are granted to a machine: %s id=%s",
                 err.text, l->row.id);
    for (size_t i = 0; i < list.count && all.count < SECRET_GRANTS_MAX; i++) {
        struct secret_grant *g = &all.list[all.count];
        const struct grant_row *row = &list.rows[i];
        if (secret_way_parse(row->mode, &g->way, &err) < 0 ||
            !read_placeholder(row->detail, g->placeholder))
            continue;
        snprintf(g->name, sizeof(g->name), "%s", row->what);
        snprintf(g->host, sizeof(g->host), "%s", row->place);
        all.count++;
    }
    gate_set_grants(l->gate, &all);
}
