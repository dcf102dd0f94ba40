/*
 * Adds and revokes grants of a machine that exists. The journal has the intent before anything
 * happens, and the effect is on disk before the caller gets an answer.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/cells.h"
#include "service/grants/databases_inner.h"
#include "service/grants/grants.h"
#include "service/grants/inner.h"
#include "service/net/live.h"
#include "service/review/live.h"
#include "service/rights.h"
#include "service/taint.h"

enum { RETRY_MS = 1000 };

/*
 * A grant that is being added or revoked. The order is: intent in the journal, effect, flush to
 * disk, result in the journal, answer to the caller.
 */
struct granting {
    struct live *live;
    struct caller who;
    const struct grant_kind *kind;
    const char *verb;
    enum grant_fate fate;
    bool ends; /* the grant is revoked or has expired */
    struct grant_row row;
    uint64_t intent;
    char *env; /* the machine's variables without those of the grant */
    bool failed;
    struct err err;
    service_net_fn *done; /* NULL: no caller waits for an answer */
    void *arg;
};

static void granting_end(struct granting *g) {
    struct live *l = g->live;
    struct buf text DEFER(buf_done) = BUF(JOURNAL_DETAIL_MAX);
    const char *detail = grants_describe(&g->row, &text);
    const struct journal_record what = {.verb = g->verb, .machine = l->row.id, .detail = detail};
    const struct err *err = g->failed ? &g->err : NULL;
    char risk[RISKS_SIZE];
    l->grants->granting = false;
    note_result(l->service, &g->who, &what, g->intent, err);
    if (!err)
        grants_count(l->service, g->row.kind, g->fate);
    if (!err)
        risks_note(l, risk);
    if (!err)
        event_tell(l->service, l->row.owner, l->row.id, g->ends ? "grant.ended" : "grant.added",
                   detail);
    else if (!g->done)
        log_line(LOG_WARN, "service", "operation %s failed: %s id=%s", g->verb, err->text,
                 l->row.id);
    if (g->done && err)
        g->done(g->arg, NULL, err);
    else if (g->done)
        grants_answer(l, g->done, g->arg);
    grant_row_done(&g->row);
    live_unref(l);
    free(g->env);
    free(g);
}

static void grants_flush(void *arg) {
    struct granting *g = arg;
    const struct service *s = g->live->service;
    g->failed = (g->fate == GRANT_REVOKED && changesets_revoke(s, g->row.id, &g->err) < 0) ||
                store_flush(s->store, &g->err) < 0;
}

static void grants_flushed(void *arg) {
    granting_end(arg);
}

static void grants_told(void *arg, const struct err *err) {
    struct granting *g = arg;
    (void)err;
    loop_work(g->live->service->loop, grants_flush, grants_flushed, g);
}

static void granting_fail(struct granting *g, const struct err *err) {
    g->failed = true;
    g->err = *err;
    granting_end(g);
}

static void granting_late(void *arg, const struct err *why) {
    struct granting *g = arg;
    service_net_fn *done = TAKE(g->done);
    struct err err;
    err_set(&err, ERR_UNKNOWN, "operation %s of machine '%s' is done but not saved yet: %s",
            g->verb, g->live->row.id, why->text);
    err_remedy(&err, "free space on the disk that holds CARREL_HOME");
    if (done)
        done(g->arg, NULL, &err);
}

/* Deletes the row. The machine keeps the variables of the grant until that is committed. */
static int write_over(void *arg, struct err *err) {
    struct granting *g = arg;
    struct live *l = g->live;
    char *before = live_env_copy(l);
    int r = g->kind->unsettle ? g->kind->unsettle(l, &g->row, err) : 0;
    if (r == 0)
        r = store_grant_remove(l->service->store, g->row.id, err);
    free(g->env);
    g->env = live_env_copy(l);
    live_put_env(l, before);
    return r;
}

static void over_written(void *arg, const struct err *failed) {
    struct granting *g = arg;
    struct live *l = g->live;
    if (failed && !g->failed) {
        g->failed = true;
        g->err = *failed;
    }
    if (!failed)
        live_put_env(l, TAKE(g->env));
    grants_restore(l);
    l->service->grants->copies_unswept = true;
    if (g->failed)
        granting_end(g);
    else
        net_tell(l, grants_told, g);
}

/* Called when kind->give() or take() is done. Deletes a grant that was revoked or not delivered. */
static void effective(void *arg, const struct err *failed) {
    struct granting *g = arg;
    struct live *l = g->live;
    if (failed) {
        g->failed = true;
        g->err = *failed;
    }
    if (!failed == g->ends) {
        const struct commit commit = {write_over, over_written, granting_late, g};
        commit_run(l->service->commits, &l->lane, &commit);
        return;
    }
    grants_restore(l);
    l->service->grants->copies_unswept = true;
    if (failed)
        granting_end(g);
    else
        net_tell(l, grants_told, g);
}

static struct granting *granting_new(struct live *l, const struct caller *who, enum grant_fate fate,
                                     service_net_fn *done, void *arg) {
    static const char *const verbs[] = {[GRANT_ADDED] = "grant.add",
                                        [GRANT_REVOKED] = "grant.revoke",
                                        [GRANT_EXPIRED] = "grant.expire"};
    struct granting *g = xnew(struct granting);
    *g = (struct granting){.live = l,
                           .who = *who,
                           .verb = verbs[fate],
                           .fate = fate,
                           .ends = fate != GRANT_ADDED,
                           .done = done,
                           .arg = arg};
    live_ref(l);
    l->grants->granting = true;
    return g;
}

static int granting_begin(struct granting *g, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(JOURNAL_DETAIL_MAX);
    const struct journal_record what = {
        .verb = g->verb, .machine = g->live->row.id, .detail = grants_describe(&g->row, &text)};
    return note_intent(g->live->service, &g->who, &what, &g->intent, err);
}

/* Refuses a machine that another operation is changing, or that is not up. */
static struct live *grants_find(struct service *s, const struct caller *who, const char *machine,
                                struct err *err) {
    struct live *l =
        authorise(who, RIGHT_GRANT, err) < 0 ? NULL : live_find(s, who, machine, LIVE_ANY, err);
    if (!l || (!l->grants->granting && !l->changing && l->machine))
        return l;
    live_state_error(l, err);
    err_remedy(err, "another operation on the machine is in progress: try again later");
    return NULL;
}

static int check_count(struct live *l, struct err *err) {
    struct grant_list list DEFER(grant_list_done) = {0};
    if (store_grant_list(l->service->store, l->row.id, NULL, &list, err) < 0)
        return -1;
    return list.count < STORE_GRANTS_MAX
               ? 0
               : err_set(err, ERR_LIMIT, "too many grants: a machine can have at most %d",
                         STORE_GRANTS_MAX);
}

void service_grant_add(struct service *s, const struct caller *who, const char *machine,
                       const struct grant_request *r, int fd, service_net_fn *done, void *arg) {
    struct grant_plan plan DEFER(grant_plan_done) = {0};
    struct live *l;
    struct err err;
    if (!(l = grants_find(s, who, machine, &err)) || cell_refuse(l, "grants", &err) < 0 ||
        check_count(l, &err) < 0 || grant_plan_read(s, who, r, fd, &plan, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    struct granting *g = granting_new(l, who, GRANT_ADDED, done, arg);
    g->kind = grant_kind_find(plan.rows[0].kind, NULL);
    g->row = plan.rows[0];
    plan.rows[0] = (struct grant_row){0};
    struct grant_plan one = {.rows = &g->row, .count = 1};
    /*
     * taint_grant() comes first: once grants_settle_all() wrote the row, commands see the grant.
     */
    if (granting_begin(g, &err) < 0 || taint_grant(l, r, plan.fds[0], &err) < 0 ||
        grants_settle_all(l, NULL, &one, &err) < 0) {
        granting_fail(g, &err);
        return;
    }
    g->kind->give(l, &g->row, plan.fds[0], effective, g);
}

static void grants_take_back(struct granting *g) {
    struct err err;
    g->kind = grant_kind_find(g->row.kind, &err);
    if (!g->kind || granting_begin(g, &err) < 0)
        granting_fail(g, &err);
    else
        g->kind->take(g->live, &g->row, effective, g);
}

/* If `id` is a database that could not be dropped, stops the tries. Otherwise answers `why`. */
static void forget_left(struct service *s, const struct caller *who, const char *ref,
                        const char *id, const struct err *why, service_net_fn *done, void *arg) {
    struct buf text DEFER(buf_done) = BUF(256);
    struct machine_row row DEFER(machine_row_done) = {0};
    struct err err = *why;
    bool may = (why->code == ERR_GONE || why->code == ERR_NOT_FOUND) &&
               authorise(who, RIGHT_GRANT, &err) == 0 &&
               live_row_find(s, who, ref, &row, NULL) == 0;
    if (!may || databases_forget(s, who, row.id, id, &err) < 0) {
        done(arg, NULL, may && err.code != ERR_NOT_FOUND ? &err : why);
        return;
    }
    if (!buf_addf(&text, "{\"machine\":\"%s\",\"grants\":[]}", row.id))
        abort();
    done(arg, text.data, NULL);
}

void service_grant_revoke(struct service *s, const struct caller *who, const char *machine,
                          const char *id, service_net_fn *done, void *arg) {
    struct grant_row row;
    struct err err;
    struct live *l = grants_find(s, who, machine, &err);
    if (!l || store_grant_get(s->store, l->row.id, id, &row, &err) < 0) {
        if (l && err.code == ERR_NOT_FOUND)
            err_remedy(&err, "list the grants of the machine: carrel grants %s", l->row.id);
        forget_left(s, who, machine, id, &err, done, arg);
        return;
    }
    struct granting *g = granting_new(l, who, GRANT_REVOKED, done, arg);
    g->row = row;
    grants_take_back(g);
}

static bool grants_is_half(const struct grant_row *row) {
    const struct grant_kind *kind = grant_kind_find(row->kind, NULL);
    return kind && kind->is_half && kind->is_half(row);
}

static void grants_end(struct live *l, struct grant_row *row, enum grant_fate fate) {
    struct caller who = {.scopes = SCOPE_READ | SCOPE_RUN | SCOPE_ADMIN};
    snprintf(who.owner, sizeof(who.owner), "%s", l->row.owner);
    snprintf(who.client, sizeof(who.client), "%s",
             fate == GRANT_EXPIRED ? "expiry" : "restart of the daemon");
    struct granting *g = granting_new(l, &who, fate, NULL, NULL);
    g->row = *row;
    *row = (struct grant_row){0};
    grants_take_back(g);
}

void grants_look(struct live *l, int64_t wall_ms) {
    struct grant_list list DEFER(grant_list_done) = {0};
    struct err err;
    bool is_due = l->grants->half || (l->grants->due_ms && wall_ms >= l->grants->due_ms);
    if (!is_due || l->grants->granting || l->changing || !l->machine ||
        l->row.state == MACHINE_PAUSED)
        return;
    l->grants->due_ms = l->grants->due_ms ? wall_ms + RETRY_MS : 0;
    if (store_grant_list(l->service->store, l->row.id, NULL, &list, &err) < 0)
        return;
    for (size_t i = 0; i < list.count; i++) {
        const struct grant_row *row = &list.rows[i];
        bool expired = row->expires_ms && row->expires_ms <= wall_ms;
        if (!expired && !grants_is_half(row))
            continue;
        grants_end(l, &list.rows[i], expired ? GRANT_EXPIRED : GRANT_REVOKED);
        return; /* the next tick handles the next grant */
    }
    l->grants->half = false;
}

int grants_write_woken(struct live *l, struct grant_list *ret, struct err *err) {
    struct store *store = l->service->store;
    grant_list_done(ret);
    if (store_grant_list(store, l->row.id, grant_dir.name, ret, err) < 0)
        return -1;
    for (size_t i = 0; i < ret->count; i++)
        if (store_grant_remove(store, ret->rows[i].id, err) < 0)
            return -1;
    return 0;
}

void grants_note_woken(struct live *l, const struct grant_list *gone) {
    struct caller who = {.client = "restart of the host"};
    snprintf(who.owner, sizeof(who.owner), "%s", l->row.owner);
    for (size_t i = 0; i < gone->count; i++)
        grants_note(l, &who, "grant.revoke", &gone->rows[i]);
}
