#include "service/models/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/models/inner.h"
#include "service/models/live.h"
#include "service/net/live.h"
#include "service/state.h"
#include "service/taint.h"
#include "store/secrets.h"

struct service_models {
    struct fetcher *fetcher;
    struct ledger *ledger;
    struct gateway *gateway;
    struct logins *logins;
    struct model_stats stats;
    struct buf key; /* the last key that reveal_key() returned; `wipe` erases it */
    struct loop_call wipe;
};

/* ---- journal and statistics ---- */

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
    if (c->lowered_to)
        jot_u64(j, "lowered_to", c->lowered_to);
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
    if (l && c->lowered_to && !is_refused(c))
        event_tell(s, l->row.owner, l->row.id, "model.lowered", r.detail);
}

static void models_told(void *arg, const struct gateway_call *c) {
    service_model_told(arg, c);
}

void service_model_stats(const struct service *s, struct model_stats *ret) {
    *ret = s->models->stats;
}

/* ---- requests that make a provider fetch data ---- */

/*
 * Called for a request that lets the provider reach others, such as a web search. The answer is
 * untrusted, so the request taints the machine. If taint has closed the network of the machine, the
 * request is refused, because it could carry the machine's data to others.
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
    return err_remedy(err, "remove that part from the request");
}

/* ---- connections of machines ---- */

static void on_request(struct http_exchange *x, void *arg) {
    struct live *l = arg;
    char account[ACCOUNT_ID_SIZE];
    struct err err;
    if (account_ensure_machine(l->service, l->row.owner, l->row.id, account, &err) == 0) {
        gateway_request(l->service->models->gateway, x, account);
        return;
    }
    log_line(LOG_ERROR, "service", "load the model account of a machine: %s id=%s", err.text,
             l->row.id);
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

/* Returns the value of a secret of the daemon's user, who also owns carrel.conf; or NULL. */
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

/* ---- start and stop ---- */

struct model_access service_model_access(struct service *s) {
    return (struct model_access){.loop = s->loop,
                                 .fetcher = s->models->fetcher,
                                 .store = s->store,
                                 .ledger = s->models->ledger,
                                 .conf = s->conf,
                                 .env = find_key,
                                 .env_arg = s};
}

bool service_has_model_keys(const struct caller *who) {
    return who->local && who->uid == geteuid();
}

struct logins *models_logins(const struct service *s) {
    return s->models->logins;
}

struct service_models *service_models_new(struct service *s, struct err *err) {
    struct service_models *m = xnew(struct service_models);
    const struct fetcher_config config = {.proxy = s->conf->proxy[0] ? s->conf->proxy : NULL};
    m->wipe = (struct loop_call){.fn = wipe_key, .arg = m};
    m->fetcher = fetcher_new(s->loop, &config, err);
    if (!m->fetcher) {
        free(m);
        return NULL;
    }
    m->ledger = ledger_new(s->loop, s->store, s->conf->currency);
    m->logins = logins_new(&(struct logins_config){
        .loop = s->loop, .fetcher = m->fetcher, .store = s->store, .conf = s->conf});
    m->gateway = gateway_new(&(struct gateway_config){.loop = s->loop,
                                                      .fetcher = m->fetcher,
                                                      .ledger = m->ledger,
                                                      .conf = s->conf,
                                                      .env = find_key,
                                                      .env_arg = s,
                                                      .told = models_told,
                                                      .told_arg = s,
                                                      .reaches = reaches,
                                                      .reaches_arg = s,
                                                      .logins = m->logins,
                                                      .login = models_login,
                                                      .login_arg = s});
    gate_serve(net_gate(s), MODELS_HOST, on_connection, s);
    return m;
}

void service_models_free(struct service_models *m, struct loop *loop) {
    if (!m)
        return;
    gateway_free(m->gateway);
    logins_free(m->logins);
    ledger_free(m->ledger);
    fetcher_free(m->fetcher);
    loop_call_cancel(loop, &m->wipe);
    wipe_key(m);
    free(m);
}
