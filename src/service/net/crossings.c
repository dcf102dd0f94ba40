/*
 * Writes the gate's reports to the journal and the store: connections, refusals, names and waiting
 * requests of machines. Refusals above a limit are only counted (flood.h), so that no machine can
 * fill the journal.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/net/inner.h"
#include "service/rights.h"
#include "service/taint.h"
#include "store/networks.h"

enum { REFUSALS_MS = 60000 }; /* refusals of a machine within this time are counted together */

/* Limits records of requests to exposed ports. Their clients have a token, so this limits only
 * bursts. */
static const struct flood_limit entry_limit = {.window_ms = 1000, .most = 50};

static const struct {
    const char *verb, *event;
} outcomes[] = {
    [GATE_ALLOWED] = {"net.allow", NULL}, [GATE_DENIED] = {"net.deny", "net.denied"},
    [GATE_CLOSED] = {"net.close", NULL},  [GATE_HELD] = {"net.hold", "net.held"},
    [GATE_USED] = {"secret.use", NULL},
};

static void put_crossing(struct jot *j, const struct gate_crossing *c) {
    jot_object(j, NULL);
    jot_string(j, "host", c->host);
    jot_u64(j, "port", c->port);
    if (c->protocol)
        jot_string(j, "protocol", c->protocol);
    if (c->method)
        jot_string(j, "method", c->method);
    if (c->path)
        jot_bytes(j, "path", c->path, strnlen(c->path, 1024));
    if (c->address)
        jot_string(j, "address", c->address);
    if (c->rule)
        jot_u64(j, "rule", c->rule);
    if (c->pending)
        jot_string(j, "pending", c->pending);
    if (c->secret) {
        jot_string(j, "secret", c->secret);
        jot_string(j, "as", c->way);
    }
    if (c->outcome == GATE_CLOSED) {
        jot_u64(j, "sent", c->sent);
        jot_u64(j, "received", c->received);
    }
    if (c->failed)
        jot_bool(j, "failed", true);
    if (c->cached)
        jot_string(j, "from", "cache");
    if (c->why)
        jot_string(j, "why", c->why);
    jot_end(j, '}');
}

static void write_note(struct live *l, const char *verb, const char *why, const char *detail,
                       uint64_t bytes) {
    struct err err;
    const struct journal_record r = {.kind = JOURNAL_NOTE,
                                     .owner = l->row.owner,
                                     .verb = verb,
                                     .machine = l->row.id,
                                     .reason = why,
                                     .bytes = bytes,
                                     .detail = detail};
    if (store_log(l->service->store, &r, NULL, &err) < 0)
        log_line(LOG_ERROR, "service", "write the journal: %s", err.text);
}

struct flood_limit net_refusal_limit(const struct live *l) {
    return (struct flood_limit){.window_ms = REFUSALS_MS,
                                .most = l->service->conf->journal_refusals};
}

void net_tell_counted(struct live *l, const char *verb, uint64_t counted) {
    char why[80], detail[48];
    if (!counted)
        return;
    snprintf(why, sizeof(why), "%" PRIu64 " more events were counted but not recorded one by one",
             counted);
    snprintf(detail, sizeof(detail), "{\"count\":%" PRIu64 "}", counted);
    write_note(l, verb, why, detail, 0);
}

/* Called periodically, so that the count of a window is reported even without new events. */
void net_floods_look(struct live *l, uint64_t now_ms) {
    const struct flood_limit limit = net_refusal_limit(l);
    uint64_t counted;
    if (flood_turn(&l->net->refusals, &limit, now_ms, &counted))
        net_tell_counted(l, "net.deny", counted);
    if (flood_turn(&l->net->entries, &entry_limit, now_ms, &counted))
        net_tell_counted(l, "expose.enter", counted);
}

/* Whether a refusal gets its own journal record. False: the machine was refused too often. */
static bool admit_refusal(struct live *l) {
    const struct flood_limit limit = net_refusal_limit(l);
    net_floods_look(l, loop_now_ms(l->service->loop));
    return flood_admit(&l->net->refusals, &limit);
}

static bool admit_entry(struct live *l) {
    net_floods_look(l, loop_now_ms(l->service->loop));
    return flood_admit(&l->net->entries, &entry_limit);
}

void net_note(struct live *l, const char *verb, const char *why, const char *detail) {
    if (why ? admit_refusal(l) : admit_entry(l))
        write_note(l, verb, why, detail, 0);
}

/* Tries again to store the taint (that the machine read untrusted data). Closes the network of the
 * machine if that fails, because a restarted daemon would not know the taint. */
static void cut_unsaved(void *arg) {
    struct live *l = arg;
    struct err err;
    if (taint_join(l, TAINT_NETWORK, NULL, &err) < 0) {
        gate_silence(l->gate);
        net_no_doors(l, err.text);
    }
    l->net->cutting = false;
    live_unref(l);
}

/* Taints the machine before it reads data from an untrusted host. */
static bool net_taint(struct live *l, const struct gate_crossing *c) {
    struct err err;
    if (taint_crossed(l, c->rule, c->host, &err) == 0)
        return true;
    if (l->net->cutting)
        return false;
    log_line(LOG_ERROR, "service",
             "store that a machine is tainted (read untrusted data): %s id=%s", err.text,
             l->row.id);
    l->net->cutting = true;
    live_ref(l);
    l->net->cut = (struct loop_call){.fn = cut_unsaved, .arg = l};
    loop_defer(l->service->loop, &l->net->cut); /* deferred: the caller still uses the connection */
    return false;
}

static bool crossed(void *arg, const char *machine, const struct gate_crossing *c) {
    struct service *s = arg;
    struct live *l = map_get(&s->machines, machine);
    if (!l || (c->outcome == GATE_DENIED && !admit_refusal(l)))
        return false;
    struct buf text DEFER(buf_done) = BUF(JOURNAL_DETAIL_MAX);
    struct jot j = JOT(&text);
    put_crossing(&j, c);
    const char *detail = j.failed ? NULL : text.data;
    write_note(l, outcomes[c->outcome].verb, c->why, detail, c->sent + c->received);
    if (c->outcome == GATE_USED)
        secrets_used(l, c->secret);
    bool goes_on = c->outcome != GATE_ALLOWED || net_taint(l, c);
    if (outcomes[c->outcome].event)
        event_tell(s, l->row.owner, l->row.id, outcomes[c->outcome].event, detail);
    idle_touch(&l->idle, loop_now_ms(s->loop));
    return goes_on;
}

/* Writes one record per second for all refused packets, because the kernel only counts them. */
static void refused(void *arg, const char *machine, const struct gate_refusal *r) {
    struct service *s = arg;
    struct live *l = map_get(&s->machines, machine);
    char detail[128];
    if (!l)
        return;
    l->net->packets.admitted++;
    snprintf(detail, sizeof(detail),
             "{\"protocol\":\"%s\",\"packets\":%" PRIu64 ",\"total\":%" PRIu64 "}", r->protocol,
             r->packets, r->total);
    write_note(l, "net.refused", r->why, detail, 0);
    event_tell(s, l->row.owner, l->row.id, "net.refused", detail);
}

static void net_named(void *arg, const char *machine, uint32_t number, const char *name) {
    struct service *s = arg;
    struct err err;
    if (store_network_name_put(s->store, machine, number, name, &err) < 0)
        log_line(LOG_WARN, "service", "save a host name that a machine resolved: %s id=%s",
                 err.text, machine);
}

static void pended(void *arg, const char *machine, const struct pending *p, bool gone) {
    struct service *s = arg;
    char *wish DEFER_FREE =
        xformat("%s\n%s\n%" PRIu64 "\n%s\n%s", p->path, p->query, p->body, p->hash, p->fields);
    struct pending_row row = {.port = p->port,
                              .path = wish,
                              .rule = p->rule,
                              .since_ms = p->since_ms,
                              .until_ms = wall_ms() + (int64_t)(p->until_ms - loop_now_ms(s->loop)),
                              .approved = p->state == PENDING_APPROVED};
    struct err err;
    snprintf(row.id, sizeof(row.id), "%s", p->id);
    snprintf(row.machine, sizeof(row.machine), "%s", machine);
    snprintf(row.host, sizeof(row.host), "%s", p->host);
    snprintf(row.protocol, sizeof(row.protocol), "%s", p->protocol);
    snprintf(row.method, sizeof(row.method), "%s", p->method);
    if ((gone ? store_pending_remove(s->store, p->id, &err)
              : store_pending_put(s->store, &row, &err)) < 0)
        log_line(LOG_WARN, "service", "save a network request that waits for approval: %s id=%s",
                 err.text, machine);
}

/*
 * Parses the stored text of a waiting request. Its lines are path, query, size of the body, hash of
 * the body, hash of the header fields. A record of an older version lacks the hashes, so no request
 * matches it.
 */
static void read_wish(char *text, struct pending *ret) {
    const char *lines[5] = {"", "", "0", "", ""};
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines) && text; i++)
        lines[i] = strsep(&text, "\n");
    ret->path = (char *)lines[0];
    ret->query = (char *)lines[1];
    ret->body = strtoull(lines[2], NULL, 10);
    snprintf(ret->hash, sizeof(ret->hash), "%s", lines[3]);
    snprintf(ret->fields, sizeof(ret->fields), "%s", lines[4]);
}

void net_restore_pending(void *arg, const struct pending_row *row) {
    struct live *l = arg;
    int64_t left = row->until_ms - wall_ms();
    char *wish DEFER_FREE = xstrdup(row->path ? row->path : "");
    struct pending p = {.port = (uint16_t)row->port,
                        .rule = row->rule,
                        .since_ms = row->since_ms,
                        .state = row->approved ? PENDING_APPROVED : PENDING_WAITS};
    read_wish(wish, &p);
    snprintf(p.id, sizeof(p.id), "%s", row->id);
    snprintf(p.host, sizeof(p.host), "%s", row->host);
    snprintf(p.protocol, sizeof(p.protocol), "%s", row->protocol);
    snprintf(p.method, sizeof(p.method), "%s", row->method);
    if (left > 0 && left <= POLICY_HOLD_MAX_MS)
        gate_restore_pending(l->gate, &p, (uint64_t)left);
    else
        (void)store_pending_remove(l->service->store, row->id, NULL);
}

static struct secret *secret(void *arg, const char *machine, const char *name) {
    return secrets_value(arg, machine, name);
}

const struct gate_hooks net_hooks = {crossed, net_named, pended, secret, refused, net_cache};
