#include "service/net/net.h"
#include "service/cells.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/exec/live.h"
#include "service/grants/live.h"
#include "service/models/live.h"
#include "service/net/inner.h"
#include "service/taint.h"
#include "store/networks.h"

enum { HOSTS_MAX = 1 << 20, DOORS_MS = 1000, REFUSED_MS = 1000 };

struct live_net *live_net_new(void) {
    struct live_net *n = xnew(struct live_net);
    return n;
}

void live_net_free(struct live_net *n) {
    free(n->env.v);
    free(n->mirrors);
    free(n->warnings);
    free(n);
}

/* ---- the gate ---- */

static int read_hosts_line(struct gate *g, char *line, struct err *err) {
    char *rest = line + strcspn(line, "#");
    *rest = '\0';
    rest = line;
    const char *address = NULL;
    for (char *word; (word = strsep(&rest, " \t\r"));) {
        if (!*word)
            continue;
        if (!address)
            address = word;
        else if (gate_set_name(g, word, address, err) < 0)
            return -1;
    }
    return 0;
}

static int read_hosts(struct gate *g, const char *path, struct err *err) {
    char *text DEFER_FREE = calloc(1, HOSTS_MAX);
    FILE *f = text ? fopen(path, "re") : NULL;
    if (!f)
        return err_sys(err, "cannot open hosts file '%s'", path);
    size_t n = fread(text, 1, HOSTS_MAX - 1, f);
    fclose(f);
    text[n] = '\0';
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));)
        if (read_hosts_line(g, line, err) < 0)
            return err_wrap(err, "cannot read hosts file '%s'", path);
    return 0;
}

static struct gate *net_gate_new(struct service *s, struct err *err) {
    const struct gate_options o = {.loop = s->loop, .hooks = &net_hooks, .arg = s};
    struct gate *g = gate_new(&o);
    if (gate_trust(g, s->conf->gate_ca, err) < 0 ||
        (s->conf->gate_hosts[0] && read_hosts(g, s->conf->gate_hosts, err) < 0)) {
        gate_free(g);
        return NULL;
    }
    return g;
}

struct service_net *service_net_new(struct service *s, struct err *err) {
    struct gate *gate = net_gate_new(s, err);
    if (!gate)
        return NULL;
    struct service_net *n = xnew(struct service_net);
    *n = (struct service_net){.gate = gate, .ingress = expose_new(s)};
    return n;
}

void service_net_free(struct service_net *n) {
    if (!n)
        return;
    ingress_free(n->ingress);
    gate_free(n->gate);
    net_caches_free(n);
    free(n);
}

struct gate *net_gate(const struct service *s) {
    return s->net->gate;
}

void service_net_stats(struct service *s, struct gate_stats *ret) {
    gate_stats(s->net->gate, ret);
}

/* ---- machines ---- */

struct restoring {
    struct live *live;
    uint32_t newest;
    bool any;
};

static void restore_name(void *arg, uint32_t number, const char *name) {
    struct restoring *r = arg;
    gate_restore_name(r->live->gate, number, name);
    r->newest = number;
    r->any = true;
}

/* Restores the network policy. A machine whose policy cannot be read counts as guarded and
 * tainted. */
static void restore_policy(struct live *l) {
    struct policy *p = gate_policy(l->gate);
    struct err err;
    char *json DEFER_FREE = NULL;
    if (store_network_get(l->service->store, l->row.id, &json, &err) == 0 &&
        (!json || policy_read(json, p, &err) == 0)) {
        taint_restored(l);
        return;
    }
    log_line(LOG_ERROR, "service",
             "restore the network rules of a machine: %s; the network stays closed id=%s", err.text,
             l->row.id);
    p->guarded = true;
    policy_taint(p, 0, "rules that cannot be read", wall_ms());
}

void net_restore(struct live *l) {
    struct restoring r = {.live = l};
    struct store *store = l->service->store;
    struct err err;
    restore_policy(l);
    if (store_network_names(store, l->row.id, restore_name, &r, &err) < 0)
        log_line(LOG_ERROR, "service", "restore the host names that a machine resolved: %s id=%s",
                 err.text, l->row.id);
    if (r.any)
        gate_restored_names(l->gate, r.newest);
    if (store_pending_list(store, l->row.id, net_restore_pending, l, &err) < 0)
        log_line(LOG_ERROR, "service",
                 "restore the network requests that wait for approval: %s id=%s", err.text,
                 l->row.id);
    net_restore_trust(l);
    grants_restore(l);
    expose_restore(l);
}

int net_keep(struct live *l, struct err *err) {
    struct policy *p = gate_policy(l->gate);
    struct buf text DEFER(buf_done) = BUF(POLICY_MAX);
    struct jot j = JOT(&text);
    if (!p->count && !p->last_id && !p->guarded && !p->tainted[0])
        return 0;
    policy_write(p, &j, NULL);
    if (j.failed)
        return err_set(err, ERR_LIMIT,
                       "the network policy of machine '%s' is too large: remove some rules",
                       l->row.id);
    return store_network_set(l->service->store, l->row.id, text.data, err);
}

void net_no_doors(struct live *l, const char *why) {
    log_line(LOG_WARN, "service", "connect the network of a machine to the gate: %s id=%s", why,
             l->row.id);
    l->net->doors_ms = loop_now_ms(l->service->loop) + DOORS_MS;
}

void net_attach_made(struct live *l) {
    struct machine *m = l->machine;
    struct err err;
    int doors[PLAN_GATE_FDS];
    for (int i = 0; i < PLAN_GATE_FDS; i++)
        doors[i] = TAKE_FD(m->doors[i]);
    if (live_is_cell(l)) { /* its programs enter the gate in this process: exec/asks.h */
        for (int i = 0; i < PLAN_GATE_FDS; i++)
            close_fd(&doors[i]);
        return;
    }
    if (doors[0] < 0)
        net_attach_adopted(l); /* the machine was created, but the spawner's answer was lost */
    else if (gate_listen(l->gate, doors, &err) < 0)
        net_no_doors(l, err.text);
}

static void doors_came(void *arg, const int *doors, const struct err *failed) {
    struct live *l = arg;
    struct err err;
    l->net->opening = false;
    l->net->refused_ms = 0; /* the counters can be read now */
    if (failed)
        net_no_doors(l, failed->text);
    else if (gate_listen(l->gate, doors, &err) < 0)
        net_no_doors(l, err.text);
    if (l->row.state == MACHINE_ENDING)
        gate_silence(l->gate);
    live_unref(l);
}

void net_attach_adopted(struct live *l) {
    if (live_is_cell(l))
        return;
    l->net->opening = true;
    l->net->doors_ms = 0;
    live_ref(l);
    l->service->driver->listen(l->machine, doors_came, l);
}

/*
 * Reads the kernel's counters only if a command runs in the machine, or ran since the last reading,
 * so that idle machines cost nothing. After too many refusals the counters are read again in the
 * next window; the kernel keeps counting meanwhile.
 */
static void count_refused(struct live *l, uint64_t now_ms) {
    const struct flood_limit limit = net_refusal_limit(l);
    uint64_t unused;
    if (now_ms < l->net->refused_ms ||
        (!execs_running(l) && l->idle.active_ms + REFUSED_MS < l->net->refused_ms))
        return;
    l->net->refused_ms = now_ms + REFUSED_MS;
    flood_turn(&l->net->packets, &limit, now_ms, &unused);
    if (l->net->packets.admitted < limit.most)
        gate_count_refused(l->gate);
}

void net_look(struct live *l, uint64_t now_ms) {
    gate_look(l->gate);
    count_refused(l, now_ms);
    net_floods_look(l, now_ms);
    if (l->net->doors_ms && now_ms >= l->net->doors_ms && l->machine && !l->net->opening &&
        l->row.state != MACHINE_ENDING)
        net_attach_adopted(l);
}

void net_ended(struct live *l) {
    gate_count_refused(l->gate);
    net_tell_counted(l, "net.deny", flood_take(&l->net->refusals));
    net_tell_counted(l, "expose.enter", flood_take(&l->net->entries));
}

void net_detach(struct live *l) {
    gate_silence(l->gate);
    models_detach(l);
    expose_detach(l);
    l->net->doors_ms = 0;
}
