#include "service/models/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/log.h"
#include "service/models/live.h"
#include "service/net/live.h"
#include "service/state.h"
#include "service/taint.h"
#include "store/secrets.h"

struct service_models {
    struct fetcher *fetcher;
    struct gateway *gateway;
    struct model_stats stats;
    struct buf key; /* the last one that was asked for, until the stack has unwound */
    struct loop_call wipe;
};

/* ---- accounts ---- */

static void account_of(const char *kind, const char *id, char ret[ACCOUNT_ID_SIZE]) {
    snprintf(ret, ACCOUNT_ID_SIZE, "%s:%s", kind, id);
}

/* 1: it was there. 0: it was made. */
static int ensure(struct store *store, const char *id, const char *parent, const struct cost *limit,
                  struct err *err) {
    struct account_row row = {.created_ms = now_ms()};
    if (store_account_get(store, id, &row, err) == 0)
        return 1;
    if (err->code != ERR_NOT_FOUND)
        return -1;
    row = (struct account_row){.created_ms = now_ms()};
    snprintf(row.id, sizeof(row.id), "%s", id);
    snprintf(row.parent, sizeof(row.parent), "%s", parent);
    if (limit) {
        row.limit_tokens = limit->tokens;
        row.limit_micro = limit->micro;
    }
    return store_account_put(store, &row, err);
}

/* The owner's limits are those of carrel.conf as it is now. */
static int ensure_owner(struct service *s, const char *owner, char ret[ACCOUNT_ID_SIZE],
                        struct err *err) {
    const struct cost limit = {s->conf->owner_tokens, s->conf->owner_micro};
    struct account_row row;
    account_of("owner", owner, ret);
    int r = ensure(s->store, ret, "", &limit, err);
    if (r <= 0)
        return r;
    if (store_account_get(s->store, ret, &row, err) < 0)
        return -1;
    if (row.limit_tokens == limit.tokens && row.limit_micro == limit.micro)
        return 0;
    row.limit_tokens = limit.tokens;
    row.limit_micro = limit.micro;
    return store_account_put(s->store, &row, err);
}

static int ensure_machine(struct service *s, const char *owner, const char *machine,
                          char ret[ACCOUNT_ID_SIZE], struct err *err) {
    char parent[ACCOUNT_ID_SIZE];
    account_of("machine", machine, ret);
    if (ensure_owner(s, owner, parent, err) < 0)
        return -1;
    return ensure(s->store, ret, parent, NULL, err) < 0 ? -1 : 0;
}

int models_limit(struct live *l, const struct models_request *r, struct err *err) {
    struct account_row row;
    char id[ACCOUNT_ID_SIZE];
    if (!r->tokens.is && !r->money.is)
        return 0;
    if (ensure_machine(l->service, l->row.owner, l->row.id, id, err) < 0 ||
        store_account_get(l->service->store, id, &row, err) < 0)
        return -1;
    row.limit_tokens = r->tokens.is ? r->tokens.value : row.limit_tokens;
    row.limit_micro = r->money.is ? r->money.value : row.limit_micro;
    return store_account_put(l->service->store, &row, err);
}

int models_inherit(struct live *l, const struct live *from, struct err *err) {
    struct account_row row;
    char id[ACCOUNT_ID_SIZE], source[ACCOUNT_ID_SIZE];
    account_of("machine", l->row.id, id);
    if (ensure_machine(l->service, from->row.owner, from->row.id, source, err) < 0 ||
        store_account_get(l->service->store, source, &row, err) < 0)
        return -1;
    bool limited = row.limit_tokens || row.limit_micro;
    return ensure(l->service->store, id, limited ? source : row.parent, NULL, err) < 0 ? -1 : 0;
}

int service_run_account(struct service *s, const char *owner, const char *machine, const char *run,
                        const struct cost *limit, char ret[ACCOUNT_ID_SIZE], struct err *err) {
    char parent[ACCOUNT_ID_SIZE];
    int r = machine ? ensure_machine(s, owner, machine, parent, err)
                    : ensure_owner(s, owner, parent, err);
    account_of("run", run, ret);
    if (r < 0)
        return -1;
    return ensure(s->store, ret, parent, limit, err) < 0 ? -1 : 0;
}

static void put_money(struct jot *j, const char *name, uint64_t micro) {
    char text[32];
    snprintf(text, sizeof(text), "%llu.%06llu", (unsigned long long)(micro / 1000000),
             (unsigned long long)(micro % 1000000));
    jot_raw(j, name, text);
}

bool models_put(const struct live *l, struct jot *j) {
    struct account_row row;
    struct cost left;
    struct err err;
    char id[ACCOUNT_ID_SIZE];
    account_of("machine", l->row.id, id);
    if (store_account_get(l->service->store, id, &row, &err) < 0 ||
        store_account_left(l->service->store, id, &left, &err) < 0)
        return false;
    jot_object(j, NULL);
    jot_u64(j, "calls", row.calls);
    jot_u64(j, "tokens", row.spent_tokens);
    put_money(j, "money", row.spent_micro);
    jot_u64(j, "held_tokens", row.held_tokens);
    if (left.tokens != UINT64_MAX)
        jot_u64(j, "tokens_left", left.tokens);
    if (left.micro != UINT64_MAX)
        put_money(j, "money_left", left.micro);
    jot_end(j, '}');
    return !j->failed;
}

/* ---- what is written down ---- */

static void models_put_call(struct jot *j, const struct gateway_call *c) {
    jot_object(j, NULL);
    jot_string(j, "account", c->account);
    if (c->model[0]) {
        jot_string(j, "provider", c->provider);
        jot_string(j, "model", c->model);
    }
    jot_i64(j, "status", c->status);
    jot_u64(j, "in", c->usage.in);
    jot_u64(j, "cache_read", c->usage.cache_read);
    jot_u64(j, "cache_write", c->usage.cache_write + c->usage.cache_write_long);
    jot_u64(j, "out", c->usage.out);
    jot_u64(j, "tokens", c->cost.tokens);
    jot_u64(j, "micro", c->cost.micro);
    jot_bool(j, "exact", c->is_exact);
    if (c->why)
        jot_string(j, "why", c->why);
    jot_end(j, '}');
}

static bool is_refused(const struct gateway_call *c) {
    return c->why && c->cost.tokens == 0 && c->is_exact;
}

void service_model_told(struct service *s, const struct gateway_call *c) {
    struct model_stats *n = &s->models->stats;
    struct buf text DEFER(buf_done) = BUF(JOURNAL_DETAIL_MAX);
    struct jot j = JOT(&text);
    struct err err;
    const char *colon = strchr(c->account, ':');
    bool of_machine = strncmp(c->account, "machine:", 8) == 0;
    const struct live *l = of_machine ? map_get(&s->machines, colon + 1) : NULL;
    models_put_call(&j, c);
    n->calls += !is_refused(c);
    n->refused += is_refused(c);
    n->in += c->usage.in + c->usage.cache_read + c->usage.cache_write + c->usage.cache_write_long;
    n->out += c->usage.out;
    n->micro += c->cost.micro;
    const struct journal_record r = {.kind = JOURNAL_NOTE,
                                     .owner = l ? l->row.owner : NULL,
                                     .verb = is_refused(c) ? "model.refuse" : "model.call",
                                     .machine = of_machine ? colon + 1 : NULL,
                                     .reason = c->why,
                                     .detail = j.failed ? NULL : text.data};
    if (store_log(s->store, &r, NULL, &err) < 0)
        log_line(LOG_ERROR, "service", "write the journal: %s", err.text);
    if (l && is_refused(c))
        event_tell(s, l->row.owner, l->row.id, "model.refused", r.detail);
}

static void models_told(void *arg, const struct gateway_call *c) {
    service_model_told(arg, c);
}

void service_model_stats(const struct service *s, struct model_stats *ret) {
    *ret = s->models->stats;
}

/* ---- what a provider would fetch ---- */

/* A stranger would hear of it and answer: it taints, and a machine that a taint has closed may not.
 */
static int reaches(void *arg, const char *account, const char *what, struct err *err) {
    struct service *s = arg;
    struct live *l =
        strncmp(account, "machine:", 8) == 0 ? map_get(&s->machines, account + 8) : NULL;
    if (!l)
        return err_set(err, ERR_GONE, "the machine has ended");
    if (!policy_is_closed(gate_policy(l->gate)))
        return taint_join(l, TAINT_PROVIDER, MODELS_HOST, err);
    err_set(
        err, ERR_DENIED,
        "the machine has read from %.100s, a source that is not trusted, and this request could "
        "make the provider reach somebody else: %.100s",
        taint_of(l), what);
    return err_remedy(err, "leave that out of the request");
}

/* ---- machines ---- */

static void on_request(struct http_exchange *x, void *arg) {
    struct live *l = arg;
    char account[ACCOUNT_ID_SIZE];
    struct err err;
    if (ensure_machine(l->service, l->row.owner, l->row.id, account, &err) == 0) {
        gateway_request(l->service->models->gateway, x, account);
        return;
    }
    log_line(LOG_ERROR, "service", "account of a machine: %s id=%s", err.text, l->row.id);
    http_reply(x, 500, NULL, NULL, 0);
}

static void on_connection(void *arg, const char *machine, int fd) {
    struct service *s = arg;
    struct live *l = map_get(&s->machines, machine);
    if (!l) {
        close_fd(&fd);
        return;
    }
    if (!l->model_server)
        l->model_server = http_server_new(
            s->loop, &(struct http_server_config){.on_request = on_request, .arg = l});
    http_serve_fd(l->model_server, fd);
}

void models_detach(struct live *l) {
    http_server_free(TAKE(l->model_server));
}

/* ---- keys ---- */

static void wipe_key(void *arg) {
    struct service_models *m = arg;
    secret_wipe(&m->key);
}

/* A secret of the one whose carrel.conf it is. */
static const char *reveal_key(struct service *s, const char *name) {
    struct service_models *m = s->models;
    struct owner_row owner;
    struct secret *value DEFER(secret_freep) = NULL;
    struct err err;
    wipe_key(m);
    if (store_owner_by_uid(s->store, geteuid(), &owner, &err) < 0 ||
        store_secret_get(s->store, owner.name, name, &value, &err) < 0)
        return NULL;
    m->key = BUF(SECRET_MAX + 1);
    if (!secret_reveal(value, &m->key))
        return NULL;
    loop_defer(s->loop, &m->wipe);
    return m->key.data;
}

static const char *find_key(void *arg, const char *name) {
    size_t n = strlen(MODEL_ENV_SECRET);
    return strncmp(name, MODEL_ENV_SECRET, n) == 0 ? reveal_key(arg, name + n)
                                                   : model_env_process(NULL, name);
}

/* ---- life ---- */

struct model_access service_model_access(struct service *s) {
    return (struct model_access){.loop = s->loop,
                                 .fetcher = s->models->fetcher,
                                 .store = s->store,
                                 .conf = s->conf,
                                 .env = find_key,
                                 .env_arg = s};
}

struct service_models *service_models_new(struct service *s, struct err *err) {
    struct service_models *m = calloc(1, sizeof(*m));
    if (!m)
        abort();
    const struct fetcher_config config = {.proxy = s->conf->proxy[0] ? s->conf->proxy : NULL};
    m->wipe = (struct loop_call){.fn = wipe_key, .arg = m};
    m->fetcher = fetcher_new(s->loop, &config, err);
    if (!m->fetcher) {
        free(m);
        return NULL;
    }
    m->gateway = gateway_new(&(struct gateway_config){.loop = s->loop,
                                                      .fetcher = m->fetcher,
                                                      .store = s->store,
                                                      .conf = s->conf,
                                                      .env = find_key,
                                                      .env_arg = s,
                                                      .told = models_told,
                                                      .told_arg = s,
                                                      .reaches = reaches,
                                                      .reaches_arg = s});
    gate_serve(net_gate(s), MODELS_HOST, on_connection, s);
    return m;
}

void service_models_free(struct service_models *m, struct loop *loop) {
    if (!m)
        return;
    gateway_free(m->gateway);
    fetcher_free(m->fetcher);
    loop_call_cancel(loop, &m->wipe);
    wipe_key(m);
    free(m);
}
