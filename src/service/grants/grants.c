#include "service/grants/grants.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/log.h"
#include "grant/dirs.h"
#include "service/grants/databases_inner.h"
#include "service/grants/inner.h"
#include "service/net/live.h"
#include "service/review/live.h"
#include "service/rights.h"
#include "service/taint.h"

enum { LIST_MAX_BYTES = 4 << 20, RETRY_MS = 1000 };

struct service_grants *service_grants_new(struct service *s) {
    struct service_grants *g = calloc(1, sizeof(*g));
    if (!g)
        abort();
    g->databases = databases_new(s);
    g->copies_unswept = true;
    return g;
}

void service_grants_stop(struct service_grants *g) {
    databases_free(g->databases);
}

void service_grants_free(struct service *s) {
    sqlite_fetch_release(s); /* those that waited, and no answer of a machine */
    sqlite_look(s);          /* machines may have gone since the last tick */
    free(s->grants);
}

struct live_grants *live_grants_new(void) {
    struct live_grants *g = calloc(1, sizeof(*g));
    if (!g)
        abort();
    return g;
}

void live_grants_free(struct live_grants *g) {
    free(g);
}

bool grants_are_busy(const struct live *l) {
    return l->grants->granting;
}

void grants_machine_ended(struct service *s) {
    s->grants->copies_unswept = true;
}

/* One row each. */
static const struct grant_kind *const kinds[] = {&grant_dir,    &grant_file,    &grant_env,
                                                 &grant_secret, &grant_repo,    &grant_identity,
                                                 &grant_sqlite, &grant_postgres};
enum { KINDS = sizeof(kinds) / sizeof(*kinds) };
_Static_assert(sizeof(kinds) / sizeof(*kinds) <= GRANT_KINDS_MAX, "each kind is counted");

static void grants_count(struct service *s, const char *kind, enum grant_fate fate) {
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(kinds[i]->name, kind) == 0)
            s->grants->fates[i][fate]++;
}

const struct grant_kind *grant_kind_find(const char *name, struct err *err) {
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    err_set(err, ERR_INVALID, "'%.40s' is no kind of grant", name);
    return NULL;
}

/* ---- words ---- */

static void put_grant(struct jot *j, const struct grant_row *row) {
    jot_string(j, "kind", row->kind);
    jot_string(j, "what", row->what ? row->what : "");
    if (row->place && *row->place)
        jot_string(j, "at", row->place);
    if (row->mode[0])
        jot_string(j, "mode", row->mode);
    if (row->expires_ms)
        jot_i64(j, "expires_ms", row->expires_ms);
}

/* For the journal and events: what it is, without what its kind keeps. */
static const char *grants_describe(const struct grant_row *row, struct buf *text) {
    struct jot j = JOT(text);
    jot_object(&j, NULL);
    jot_string(&j, "grant", row->id);
    put_grant(&j, row);
    jot_end(&j, '}');
    return j.failed ? NULL : text->data;
}

int grant_read(struct service *s, const char *owner, const struct grant_request *r,
               const struct grant_kind **ret_kind, struct grant_row *row, struct err *err) {
    const struct grant_kind *kind = grant_kind_find(r->kind, err);
    if (!kind)
        return -1;
    *row = (struct grant_row){.created_ms = now_ms()};
    row->expires_ms = r->expires.is ? row->created_ms + (int64_t)r->expires.value : 0;
    snprintf(row->id, sizeof(row->id), "%s", id_new('g').text);
    snprintf(row->kind, sizeof(row->kind), "%s", kind->name);
    if (kind->read(s, owner, r, row, err) < 0) {
        grant_row_done(row);
        return -1;
    }
    *ret_kind = kind;
    return 0;
}

/* ---- a plan for a machine in the making ---- */

bool grant_plan_delivers(const struct grant_plan *p) {
    for (size_t i = 0; i < p->count; i++)
        if (grant_kind_find(p->rows[i].kind, NULL)->delivered)
            return true;
    return false;
}

void grant_plan_add(struct grant_plan *p, struct grant_row *row, int fd, bool ours) {
    size_t n = p->count + 1;
    p->rows = realloc(p->rows, n * sizeof(*p->rows));
    p->fds = realloc(p->fds, n * sizeof(*p->fds));
    p->ours = realloc(p->ours, n * sizeof(*p->ours));
    if (!p->rows || !p->fds || !p->ours)
        abort();
    p->rows[p->count] = *row;
    p->fds[p->count] = fd;
    p->ours[p->count] = ours;
    p->count = n;
    row->what = row->place = row->detail = NULL;
}

void grant_plan_done(struct grant_plan *p) {
    for (size_t i = 0; i < p->count; i++) {
        grant_row_done(&p->rows[i]);
        if (p->ours[i])
            close_fd(&p->fds[i]);
    }
    free(p->rows);
    free(p->fds);
    free(p->ours);
    *p = (struct grant_plan){0};
}

static void grants_note(struct live *l, const struct caller *who, const char *verb,
                        const struct grant_row *row) {
    struct buf text DEFER(buf_done) = BUF(JOURNAL_DETAIL_MAX);
    const struct journal_record r = {.kind = JOURNAL_NOTE,
                                     .owner = who->owner,
                                     .token = who->token,
                                     .client = who->client,
                                     .verb = verb,
                                     .machine = l->row.id,
                                     .detail = grants_describe(row, &text)};
    struct err err;
    if (store_log(l->service->store, &r, NULL, &err) < 0)
        log_line(LOG_ERROR, "service", "write the journal: %s", err.text);
}

static int grants_settle(struct live *l, struct grant_row *row, struct err *err) {
    const struct grant_kind *kind = grant_kind_find(row->kind, err);
    snprintf(row->machine, sizeof(row->machine), "%s", l->row.id);
    if (!kind || (kind->settle && kind->settle(l, row, err) < 0))
        return -1;
    return store_grant_put(l->service->store, row, err);
}

/* All rows and what goes with them, or nothing. */
static int grants_settle_all(struct live *l, struct grant_row *rows, size_t count,
                             struct err *err) {
    struct store *store = l->service->store;
    char *env DEFER_FREE = live_env_copy(l);
    int r = 0;
    if (store_begin(store, err) < 0)
        return -1;
    for (size_t i = 0; r == 0 && i < count; i++)
        r = grants_settle(l, &rows[i], err);
    if (r == 0 && store_commit(store, err) == 0)
        return 0;
    store_rollback(store);
    live_put_env(l, TAKE(env));
    return -1;
}

int grants_write(struct live *l, const struct caller *who, struct grant_plan *p, struct err *err) {
    if (!p->count)
        return 0;
    if (grants_settle_all(l, p->rows, p->count, err) < 0)
        return -1;
    for (size_t i = 0; i < p->count; i++)
        grants_note(l, who, "grant.add", &p->rows[i]);
    for (size_t i = 0; i < p->count; i++)
        grants_count(l->service, p->rows[i].kind, GRANT_ADDED);
    grants_restore(l);
    return 0;
}

/* A new one in place of that of its source, with the same end. */
static int renew(struct live *l, const struct grant_kind *kind, const struct grant_row *of,
                 struct grant_plan *p, struct err *err) {
    struct grant_row row = {.created_ms = now_ms(), .expires_ms = of->expires_ms};
    snprintf(row.id, sizeof(row.id), "%s", id_new('g').text);
    snprintf(row.kind, sizeof(row.kind), "%s", kind->name);
    if (kind->renew(l, of, &row, err) < 0) {
        grant_row_done(&row);
        return -1;
    }
    grant_plan_add(p, &row, -1, false);
    return 0;
}

int grants_inherit(struct live *l, const struct live *from, struct grant_plan *p, bool *any,
                   struct err *err) {
    struct grant_list list DEFER(grant_list_done) = {0};
    if (store_grant_list(l->service->store, from->row.id, NULL, &list, err) < 0)
        return -1;
    for (size_t i = 0; i < list.count; i++) {
        const struct grant_kind *kind = grant_kind_find(list.rows[i].kind, NULL);
        if (kind && kind->renew && renew(l, kind, &list.rows[i], p, err) < 0)
            return -1;
        if (!kind || !kind->inherited)
            continue;
        const struct id id = id_new('g');
        if (kind->follow && kind->follow(l, list.rows[i].id, id.text, list.rows[i].place, err) < 0)
            return -1;
        snprintf(list.rows[i].id, sizeof(list.rows[i].id), "%s", id.text);
        snprintf(list.rows[i].machine, sizeof(list.rows[i].machine), "%s", l->row.id);
        if (store_grant_put(l->service->store, &list.rows[i], err) < 0)
            return -1;
        *any = true;
    }
    grants_restore(l);
    return 0;
}

void grants_restore(struct live *l) {
    struct err err;
    secrets_restore(l);
    postgres_restore(l);
    if (store_grant_due(l->service->store, l->row.id, &l->grants->due_ms, &err) < 0)
        log_line(LOG_ERROR, "service", "grants of a machine: %s id=%s", err.text, l->row.id);
}

/* ---- delivery ---- */

struct delivering {
    struct live *live;
    struct grant_plan plan;
    size_t at;
    service_done_fn *done;
    void *arg;
};

static void deliver_next(void *arg, const struct err *err) {
    struct delivering *d = arg;
    while (!err && d->at < d->plan.count) {
        size_t i = d->at++;
        const struct grant_kind *kind = grant_kind_find(d->plan.rows[i].kind, NULL);
        if (kind->delivered) {
            kind->give(d->live, &d->plan.rows[i], d->plan.fds[i], deliver_next, d);
            return;
        }
    }
    d->done(d->arg, err);
    grant_plan_done(&d->plan);
    live_unref(d->live);
    free(d);
}

void grants_deliver(struct live *l, struct grant_plan *p, service_done_fn *done, void *arg) {
    struct delivering *d = calloc(1, sizeof(*d));
    if (!d)
        abort();
    *d = (struct delivering){.live = l, .plan = *p, .done = done, .arg = arg};
    *p = (struct grant_plan){0};
    live_ref(l);
    deliver_next(d, NULL);
}

/* ---- verbs ---- */

static void grants_answer(struct live *l, service_net_fn *done, void *arg) {
    struct buf text DEFER(buf_done) = BUF(LIST_MAX_BYTES);
    struct jot j = JOT(&text);
    struct grant_list list DEFER(grant_list_done) = {0};
    char risk[RISKS_SIZE];
    struct err err;
    if (store_grant_list(l->service->store, l->row.id, NULL, &list, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    jot_object(&j, NULL);
    jot_string(&j, "machine", l->row.id);
    jot_array(&j, "grants");
    for (size_t i = 0; i < list.count; i++) {
        jot_object(&j, NULL);
        jot_string(&j, "id", list.rows[i].id);
        put_grant(&j, &list.rows[i]);
        jot_i64(&j, "created_ms", list.rows[i].created_ms);
        if (list.rows[i].detail && strcmp(list.rows[i].detail, "{}") != 0)
            jot_raw(&j, "detail", list.rows[i].detail);
        jot_end(&j, '}');
    }
    databases_put_left(l->service, l->row.id, &j);
    jot_end(&j, ']');
    if (risks_find(l, risk))
        jot_string(&j, "warnings", risk);
    jot_end(&j, '}');
    done(arg, text.data, NULL);
}

/* Of a machine that has ended only databases that could not be dropped are left; else: why. */
static void answer_ended(struct service *s, const struct caller *who, const char *ref,
                         const struct err *why, service_net_fn *done, void *arg) {
    struct buf text DEFER(buf_done) = BUF(LIST_MAX_BYTES);
    struct jot j = JOT(&text);
    struct machine_row row DEFER(machine_row_done) = {0};
    if (why->code != ERR_GONE || live_row_find(s, who, ref, &row, NULL) < 0) {
        done(arg, NULL, why);
        return;
    }
    jot_object(&j, NULL);
    jot_string(&j, "machine", row.id);
    jot_array(&j, "grants");
    size_t count = databases_put_left(s, row.id, &j);
    jot_end(&j, ']');
    jot_end(&j, '}');
    done(arg, count ? text.data : NULL, count ? NULL : why);
}

void service_grant_list(struct service *s, const struct caller *who, const char *machine,
                        service_net_fn *done, void *arg) {
    struct err err;
    struct live *l =
        allow(who, SCOPE_READ, &err) < 0 ? NULL : live_find(s, who, machine, LIVE_ANY, &err);
    if (l)
        grants_answer(l, done, arg);
    else
        answer_ended(s, who, machine, &err, done, arg);
}

/* One that is given or taken back: intent, effect, on the disk, result, answer. */
struct granting {
    struct live *live;
    struct caller who;
    const struct grant_kind *kind;
    const char *verb;
    enum grant_fate fate;
    bool ends;
    struct grant_row row;
    uint64_t intent;
    char *env; /* its variables without those of the grant */
    bool failed;
    struct err err;
    service_net_fn *done; /* NULL: nobody waits */
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
    if (!err && !g->ends)
        risks_note(l, risk);
    if (!err)
        event_tell(l->service, l->row.owner, l->row.id, g->ends ? "grant.ended" : "grant.added",
                   detail);
    else if (!g->done)
        log_line(LOG_WARN, "service", "%s: %s id=%s", g->verb, err->text, l->row.id);
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
    err_set(&err, ERR_UNKNOWN, "%s of machine '%s' waits to be written down: %s", g->verb,
            g->live->row.id, why->text);
    err_remedy(&err, "make room on the disk that holds CARREL_HOME");
    if (done)
        done(g->arg, NULL, &err);
}

/* Its commands keep its variables until that is committed. */
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

/* A grant is over when it was taken back, or never came to be. */
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
    struct granting *g = calloc(1, sizeof(*g));
    if (!g)
        abort();
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

/* One at a time, and none while the machine is being made or ends. */
static struct live *grants_find(struct service *s, const struct caller *who, const char *machine,
                                struct err *err) {
    struct live *l =
        authorise(who, RIGHT_GRANT, err) < 0 ? NULL : live_find(s, who, machine, LIVE_ANY, err);
    if (!l || (!l->grants->granting && !l->changing && l->machine))
        return l;
    live_state_error(l, err);
    err_remedy(err, "another verb on it is under way: try again");
    return NULL;
}

static int check_count(struct live *l, struct err *err) {
    struct grant_list list DEFER(grant_list_done) = {0};
    if (store_grant_list(l->service->store, l->row.id, NULL, &list, err) < 0)
        return -1;
    return list.count < STORE_GRANTS_MAX
               ? 0
               : err_set(err, ERR_LIMIT, "a machine has at most %d grants", STORE_GRANTS_MAX);
}

/* What is copied: the descriptor of a local caller, or what a root of carrel.conf holds. */
static int open_copy(struct service *s, const struct caller *who, const struct grant_request *r,
                     int fd, bool *ret_ours, struct err *err) {
    const char *roots[CONF_ROOTS_MAX];
    const char *const own[] = {s->place->home, s->place->run, NULL};
    size_t root_count = who->local ? 0 : rights_roots(s, who, roots);
    *ret_ours = !who->local;
    if (who->local && fd < 0)
        return err_set(err, ERR_INVALID, "no descriptor came for '%.100s'", r->what);
    int file = who->local ? fd : files_open_under(r->what, roots, root_count, err);
    if (file >= 0 && file_check(file, r->what, own, err) < 0) {
        if (*ret_ours)
            close(file);
        return -1;
    }
    return file;
}

int grant_plan_read(struct service *s, const struct caller *who, const struct grant_request *r,
                    int fd, struct grant_plan *p, struct err *err) {
    const struct grant_kind *kind;
    struct grant_row row DEFER(grant_row_done) = {0};
    bool ours = false;
    int file = -1;
    if (grant_read(s, who->owner, r, &kind, &row, err) < 0 ||
        (kind->copies && (file = open_copy(s, who, r, fd, &ours, err)) < 0))
        return -1;
    grant_plan_add(p, &row, file, ours);
    return 0;
}

bool grant_wants_file(const struct grant_request *r) {
    const struct grant_kind *kind = grant_kind_find(r->kind, NULL);
    return kind && kind->copies;
}

void service_grant_add(struct service *s, const struct caller *who, const char *machine,
                       const struct grant_request *r, int fd, service_net_fn *done, void *arg) {
    struct grant_plan plan DEFER(grant_plan_done) = {0};
    struct live *l;
    struct err err;
    if (!(l = grants_find(s, who, machine, &err)) || check_count(l, &err) < 0 ||
        grant_plan_read(s, who, r, fd, &plan, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    struct granting *g = granting_new(l, who, GRANT_ADDED, done, arg);
    g->kind = grant_kind_find(plan.rows[0].kind, NULL);
    g->row = plan.rows[0];
    plan.rows[0] = (struct grant_row){0};
    /* Before grants_settle(), which writes the row: that one alone lets a command see what it
     * grants. */
    if (granting_begin(g, &err) < 0 || taint_grant(l, r, plan.fds[0], &err) < 0 ||
        grants_settle_all(l, &g->row, 1, &err) < 0) {
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

/* What is over, but still on its server, is left to that; else: why there is no such grant. */
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
            err_remedy(&err, "list what it was handed with: carrel grants %s", l->row.id);
        forget_left(s, who, machine, id, &err, done, arg);
        return;
    }
    struct granting *g = granting_new(l, who, GRANT_REVOKED, done, arg);
    g->row = row;
    grants_take_back(g);
}

/* ---- the end of a grant ---- */

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
        return; /* the next one comes with the next look */
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

/* ---- figures ---- */

static void put_live(void *arg, const char *kind, uint64_t n) {
    uint64_t *live = arg;
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(kinds[i]->name, kind) == 0)
            live[i] = n;
}

void service_each_grant_kind(struct service *s, service_grant_counts_fn *fn, void *arg) {
    uint64_t live[KINDS] = {0};
    struct err err;
    if (store_grant_count(s->store, put_live, live, &err) < 0)
        log_line(LOG_ERROR, "service", "count grants: %s", err.text);
    for (size_t i = 0; i < KINDS; i++) {
        const uint64_t *fates = s->grants->fates[i];
        const struct grant_counts c = {.kind = kinds[i]->name,
                                       .live = live[i],
                                       .added = fates[GRANT_ADDED],
                                       .revoked = fates[GRANT_REVOKED],
                                       .expired = fates[GRANT_EXPIRED]};
        fn(arg, &c);
    }
}
