/* Writes /run/carrel/machine.json, in which a machine can read its own limits and network rules. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/jot.h"
#include "base/limits.h"
#include "base/log.h"
#include "service/grants/live.h"
#include "service/models/models.h"
#include "service/net/inner.h"

enum { TEXT_MAX = PLAN_TEXT_SIZE - 1, RULES_MAX_BYTES = TEXT_MAX - 4096, GRANTS_MAX_BYTES = 4096 };

/*
 * Writes the rules, newest first, which is the order in which they decide. If there are too many,
 * writes the number of omitted rules.
 */
static void put_rules(struct jot *j, const struct buf *text, const struct policy *p) {
    size_t left = p->count;
    jot_array(j, "rules");
    for (; left && text->len < RULES_MAX_BYTES; left--)
        policy_rule_write(&p->rules[left - 1], j, NULL);
    jot_end(j, ']');
    if (left)
        jot_u64(j, "older_rules", left);
}

static void put_secrets(struct jot *j, const struct secret_grants *all) {
    jot_array(j, "secrets");
    for (size_t i = 0; i < all->count && i < 8; i++) {
        jot_object(j, NULL);
        jot_string(j, "variable", all->list[i].name);
        jot_string(j, "host", all->list[i].host);
        jot_string(j, "as", secret_way_name(all->list[i].way));
        jot_end(j, '}');
    }
    jot_end(j, ']');
}

static void put_limits(struct jot *j, const struct machine_row *row) {
    limits_write(j, &(struct limits_told){.mem_bytes = row->mem_bytes,
                                          .disk_bytes = row->disk_bytes,
                                          .pids = row->pids,
                                          .cpu_milli = row->cpu_milli,
                                          .lifetime_ms = row->ttl_ms});
}

/* Writes each grant: its path inside the machine or its name, never a path on the owner's host. */
static void put_grants(struct jot *j, const struct buf *text, struct live *l) {
    struct grant_list list DEFER(grant_list_done) = {0};
    struct err err;
    size_t i = 0;
    if (store_grant_list(l->service->store, l->row.id, NULL, &list, &err) < 0)
        log_line(LOG_ERROR, "service", "list the grants of a machine: %s id=%s", err.text,
                 l->row.id);
    jot_array(j, "grants");
    for (; i < list.count && text->len < GRANTS_MAX_BYTES; i++) {
        const struct grant_row *row = &list.rows[i];
        bool has_path = row->place && row->place[0] == '/';
        jot_object(j, NULL);
        jot_string(j, "kind", row->kind);
        jot_string(j, has_path ? "path" : "name", has_path ? row->place : row->what);
        if (row->mode[0])
            jot_string(j, "mode", row->mode);
        jot_end(j, '}');
    }
    jot_end(j, ']');
    if (i < list.count)
        jot_u64(j, "more_grants", list.count - i);
}

bool net_describe(struct live *l, struct buf *text) {
    const struct policy *p = gate_policy(l->gate);
    const struct secret_grants *grants = gate_grants(l->gate);
    struct jot j = JOT(text);
    bool any = p->count || grants->count;
    jot_object(&j, NULL);
    put_grants(&j, text, l);
    put_limits(&j, &l->row);
    jot_object(&j, "network");
    jot_string(&j, "policy", any ? "rules" : "none");
    if (any) {
        jot_string(&j, "default", "deny");
        put_rules(&j, text, p);
        put_secrets(&j, grants);
    }
    jot_end(&j, '}');
    jot_end(&j, '}');
    return !j.failed;
}

struct telling {
    struct live *live;
    service_done_fn *done;
    void *arg;
};

static void tell_told(void *arg, const struct err *err) {
    struct telling *t = arg;
    if (err && t->live->row.state == MACHINE_RUNNING)
        log_line(LOG_WARN, "service", "write the network rules to a file in a machine: %s id=%s",
                 err->text, t->live->row.id);
    if (t->done)
        t->done(t->arg, NULL);
    live_unref(t->live);
    free(t);
}

void net_tell(struct live *l, service_done_fn *done, void *arg) {
    struct buf text DEFER(buf_done) = BUF(TEXT_MAX);
    if (!l->machine || !net_describe(l, &text)) {
        if (done)
            done(arg, NULL);
        return;
    }
    struct telling *t = xnew(struct telling);
    *t = (struct telling){l, done, arg};
    live_ref(l);
    l->service->driver->tell(l->machine, text.data, tell_told, t);
}
