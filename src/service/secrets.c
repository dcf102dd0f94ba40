#include "service/secrets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "base/log.h"
#include "service/state.h"
#include "store/secrets.h"

enum { LIST_MAX_BYTES = 1 << 20 };

/* ---- an owner's secrets ---- */

/* What is done to one, acknowledged when it is on the disk. */
struct keeping {
    struct service *service;
    struct caller who;
    const char *verb;
    char detail[SECRET_NAME_SIZE + 32];
    uint64_t intent;
    service_done_fn *done;
    void *arg;
    bool failed;
    struct err err;
};

static void flush(void *arg) {
    struct keeping *k = arg;
    k->failed = store_flush(k->service->store, &k->err) < 0;
}

static void flushed(void *arg) {
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
    err_set(err, ERR_INVALID, "'%.70s' cannot be the name of a secret", name);
    return err_remedy(err, "use letters, digits and '_', as for a variable of the environment");
}

static struct keeping *keep_begin(struct service *s, const struct caller *who, const char *verb,
                                  const char *name, struct err *err) {
    struct keeping *k = calloc(1, sizeof(*k));
    if (!k)
        abort();
    *k = (struct keeping){.service = s, .who = *who, .verb = verb};
    if (net_may_open(who, err) == 0 && check_name(name, err) == 0) {
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
        loop_work(s->loop, flush, flushed, k);
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
        err_set(err, ERR_INVALID, "that cannot be the value of a secret");
        err_remedy(err, "it has %d to %d bytes, on one line", SECRET_VALUE_MIN, SECRET_MAX);
    }
    return value;
}

void service_secret_set(struct service *s, const struct caller *who, const char *name,
                        const struct secret_request *r, service_done_fn *done, void *arg) {
    struct err err;
    struct secret *value DEFER(secret_freep) = read_value(r->value, &err);
    struct keeping *k = value ? keep_begin(s, who, "secret.set", name, &err) : NULL;
    if (!k) {
        done(arg, &err);
        return;
    }
    keep_end(k, store_secret_put(s->store, who->owner, name, value, now_ms(), &err), &err, done,
             arg);
}

void service_secret_remove(struct service *s, const struct caller *who, const char *name,
                           service_done_fn *done, void *arg) {
    struct err err;
    struct keeping *k = keep_begin(s, who, "secret.remove", name, &err);
    if (!k)
        done(arg, &err);
    else
        keep_end(k, store_secret_remove(s->store, who->owner, name, &err), &err, done, arg);
}

static void put_secret(struct jot *j, const struct secret_row *row) {
    jot_object(j, NULL);
    jot_string(j, "name", row->name);
    jot_i64(j, "created_ms", row->created_ms);
    jot_i64(j, "changed_ms", row->changed_ms);
    if (row->used_ms)
        jot_i64(j, "used_ms", row->used_ms);
    jot_end(j, '}');
}

void service_secret_list(struct service *s, const struct caller *who, service_net_fn *done,
                         void *arg) {
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
    jot_array(&j, "secrets");
    for (size_t i = 0; i < list.count; i++)
        put_secret(&j, &list.rows[i]);
    jot_end(&j, ']');
    jot_end(&j, '}');
    done(arg, text.data, NULL);
}

struct secret *secrets_value(struct service *s, const char *machine, const char *name) {
    const struct live *l = map_get(&s->machines, machine);
    struct secret *value = NULL;
    struct err err;
    if (!l)
        return NULL;
    if (store_secret_get(s->store, l->row.owner, name, &value, &err) < 0 &&
        err.code != ERR_NOT_FOUND)
        log_line(LOG_ERROR, "service", "open a secret: %s id=%s", err.text, machine);
    return value;
}

void secrets_used(struct live *l, const char *name) {
    store_secret_used(l->service->store, l->row.owner, name, now_ms());
}

/* ---- what machines have placeholders of ---- */

static int read_grant(struct service *s, const char *owner, const struct grant_request *r,
                      struct secret_grant *ret, struct err *err) {
    *ret = (struct secret_grant){.way = SECRET_HEADER};
    if (check_name(r->name, err) < 0 || (r->as && secret_way_parse(r->as, &ret->way, err) < 0))
        return -1;
    if (!name_read(r->host, strlen(r->host), ret->host)) {
        err_set(err, ERR_INVALID, "'%.80s' is not the name of a host", r->host);
        return err_remedy(err, "a secret is granted for one host: NAME@api.example.com");
    }
    if (!store_secret_exists(s->store, owner, r->name)) {
        err_set(err, ERR_NOT_FOUND, "there is no secret '%s'", r->name);
        return err_remedy(err, "set it first: carrel secret set %s", r->name);
    }
    snprintf(ret->name, sizeof(ret->name), "%s", r->name);
    return 0;
}

/* Of one name there is one placeholder; of one name and host one grant. */
static int add_grant(struct secret_grants *all, struct secret_grant *g, struct err *err) {
    size_t at = all->count;
    for (size_t i = 0; i < all->count; i++) {
        if (strcmp(all->list[i].name, g->name) != 0)
            continue;
        memcpy(g->placeholder, all->list[i].placeholder, sizeof(g->placeholder));
        if (strcmp(all->list[i].host, g->host) == 0)
            at = i;
    }
    if (at == SECRET_GRANTS_MAX)
        return err_set(err, ERR_LIMIT, "a machine has at most %d grants of secrets",
                       SECRET_GRANTS_MAX);
    if (!g->placeholder[0])
        placeholder_make(g->placeholder);
    all->list[at] = *g;
    all->count += at == all->count;
    return 0;
}

static int keep_grant(struct live *l, const struct secret_grant *g, struct err *err) {
    struct grant_row row = {.created_ms = now_ms()};
    snprintf(row.machine, sizeof(row.machine), "%s", l->row.id);
    snprintf(row.name, sizeof(row.name), "%s", g->name);
    snprintf(row.host, sizeof(row.host), "%s", g->host);
    snprintf(row.way, sizeof(row.way), "%s", secret_way_name(g->way));
    snprintf(row.placeholder, sizeof(row.placeholder), "%s", g->placeholder);
    return store_grant_put(l->service->store, &row, err);
}

int secrets_read(struct service *s, const char *owner, const struct rows *grants,
                 struct secret_grants *ret, struct err *err) {
    const struct grant_request *r = grants->v;
    for (size_t i = 0; i < grants->count; i++) {
        struct secret_grant g;
        if (read_grant(s, owner, &r[i], &g, err) < 0 || add_grant(ret, &g, err) < 0)
            return -1;
    }
    return 0;
}

int secrets_hand(struct live *l, const struct secret_grants *grants, struct err *err) {
    for (size_t i = 0; i < grants->count; i++)
        if (keep_grant(l, &grants->list[i], err) < 0)
            return -1;
    gate_set_grants(l->gate, grants);
    return 0;
}

void secrets_restore(struct live *l) {
    struct secret_grants all = {.count = 0};
    struct grant_list list DEFER(grant_list_done) = {0};
    struct err err;
    if (store_grant_list(l->service->store, l->row.id, &list, &err) < 0)
        log_line(LOG_ERROR, "service", "secrets of a machine: %s id=%s", err.text, l->row.id);
    for (size_t i = 0; i < list.count && all.count < SECRET_GRANTS_MAX; i++) {
        struct secret_grant *g = &all.list[all.count];
        const struct grant_row *row = &list.rows[i];
        if (secret_way_parse(row->way, &g->way, &err) < 0)
            continue;
        snprintf(g->name, sizeof(g->name), "%s", row->name);
        snprintf(g->host, sizeof(g->host), "%s", row->host);
        snprintf(g->placeholder, sizeof(g->placeholder), "%.*s", PLACEHOLDER_SIZE - 1,
                 row->placeholder);
        all.count++;
    }
    gate_set_grants(l->gate, &all);
}

/* ---- verbs on a machine ---- */

static void answer(struct live *l, service_net_fn *done, void *arg) {
    struct buf text DEFER(buf_done) = BUF(LIST_MAX_BYTES);
    struct jot j = JOT(&text);
    const struct secret_grants *all = gate_grants(l->gate);
    jot_object(&j, NULL);
    jot_string(&j, "machine", l->row.id);
    jot_array(&j, "grants");
    for (size_t i = 0; i < all->count; i++) {
        jot_object(&j, NULL);
        jot_string(&j, "name", all->list[i].name);
        jot_string(&j, "host", all->list[i].host);
        jot_string(&j, "as", secret_way_name(all->list[i].way));
        jot_string(&j, "placeholder", all->list[i].placeholder);
        jot_end(&j, '}');
    }
    jot_end(&j, ']');
    jot_end(&j, '}');
    done(arg, text.data, NULL);
}

void service_grant_list(struct service *s, const struct caller *who, const char *machine,
                        service_net_fn *done, void *arg) {
    struct err err;
    struct live *l =
        allow(who, SCOPE_READ, &err) < 0 ? NULL : live_find(s, who, machine, LIVE_ANY, &err);
    if (l)
        answer(l, done, arg);
    else
        done(arg, NULL, &err);
}

/* The machine has its placeholder when the answer comes; it must trust who speaks for the host. */
struct granting {
    struct live *live;
    service_net_fn *done;
    void *arg;
};

static void told(void *arg, const struct err *err) {
    struct granting *g = arg;
    (void)err;
    answer(g->live, g->done, g->arg);
    live_unref(g->live);
    free(g);
}

static void trusted(void *arg, const struct err *err) {
    struct granting *g = arg;
    (void)err;
    net_tell(g->live, told, g);
}

static struct granting *granting_new(struct live *l, service_net_fn *done, void *arg) {
    struct granting *g = calloc(1, sizeof(*g));
    if (!g)
        abort();
    *g = (struct granting){l, done, arg};
    live_ref(l);
    return g;
}

static int grant(struct live *l, const struct caller *who, const struct grant_request *r,
                 struct err *err) {
    struct service *s = l->service;
    struct secret_grants all = *gate_grants(l->gate);
    struct secret_grant g;
    uint64_t intent;
    char detail[SECRET_NAME_SIZE + NAME_SIZE + 64];
    if (read_grant(s, l->row.owner, r, &g, err) < 0)
        return -1;
    snprintf(detail, sizeof(detail), "{\"secret\":\"%s\",\"host\":\"%s\",\"as\":\"%s\"}", g.name,
             g.host, secret_way_name(g.way));
    const struct journal_record what = {
        .verb = "secret.grant", .machine = l->row.id, .detail = detail};
    if (note_intent(s, who, &what, &intent, err) < 0)
        return -1;
    int status = add_grant(&all, &g, err) < 0 ? -1 : keep_grant(l, &g, err);
    note_result(s, who, &what, intent, status < 0 ? err : NULL);
    if (status == 0)
        gate_set_grants(l->gate, &all);
    return status;
}

void service_grant_add(struct service *s, const struct caller *who, const char *machine,
                       const struct grant_request *r, service_net_fn *done, void *arg) {
    struct err err;
    struct live *l =
        net_may_open(who, &err) < 0 ? NULL : live_find(s, who, machine, LIVE_ANY, &err);
    if (!l || grant(l, who, r, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    net_trust(l, trusted, granting_new(l, done, arg));
}

static int take_back(struct live *l, const struct caller *who, const char *name, struct err *err) {
    struct service *s = l->service;
    struct secret_grants all = *gate_grants(l->gate);
    uint64_t intent;
    char detail[SECRET_NAME_SIZE + 32];
    if (check_name(name, err) < 0)
        return -1;
    snprintf(detail, sizeof(detail), "{\"secret\":\"%s\"}", name);
    const struct journal_record what = {
        .verb = "secret.revoke", .machine = l->row.id, .detail = detail};
    if (note_intent(s, who, &what, &intent, err) < 0)
        return -1;
    int status = store_grant_remove(s->store, l->row.id, name, NULL, err);
    note_result(s, who, &what, intent, status < 0 ? err : NULL);
    if (status < 0)
        return -1;
    size_t kept = 0;
    for (size_t i = 0; i < all.count; i++)
        if (strcmp(all.list[i].name, name) != 0)
            all.list[kept++] = all.list[i];
    all.count = kept;
    gate_set_grants(l->gate, &all);
    return 0;
}

void service_grant_remove(struct service *s, const struct caller *who, const char *machine,
                          const char *name, service_net_fn *done, void *arg) {
    struct err err;
    struct live *l =
        net_may_open(who, &err) < 0 ? NULL : live_find(s, who, machine, LIVE_ANY, &err);
    if (!l || take_back(l, who, name, &err) < 0)
        done(arg, NULL, &err);
    else
        net_tell(l, told, granting_new(l, done, arg));
}
