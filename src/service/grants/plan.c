/*
 * The grants of a machine that is being created: reads the requests, stores the rows, lets a fork
 * inherit those of its source, and delivers them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "grant/dirs.h"
#include "service/grants/bases.h"
#include "service/grants/inner.h"
#include "service/grants/roots.h"
#include "service/rights.h"

bool grant_plan_delivers(const struct grant_plan *p) {
    for (size_t i = 0; i < p->count; i++)
        if (grant_kind_find(p->rows[i].kind, NULL)->delivered)
            return true;
    return false;
}

void grant_plan_add(struct grant_plan *p, struct grant_row *row, int fd, bool ours) {
    size_t n = p->count + 1;
    p->rows = xrealloc(p->rows, n, sizeof(*p->rows));
    p->fds = xrealloc(p->fds, n, sizeof(*p->fds));
    p->ours = xrealloc(p->ours, n, sizeof(*p->ours));
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

static int grants_settle(struct live *l, struct grant_row *row, struct err *err) {
    const struct grant_kind *kind = grant_kind_find(row->kind, err);
    snprintf(row->machine, sizeof(row->machine), "%s", l->row.id);
    if (!kind || (kind->settle && kind->settle(l, row, err) < 0))
        return -1;
    return store_grant_put(l->service->store, row, err);
}

/* Adds a new grant to the plan, in place of grant `of` of the source, with the same expiry. */
static int renew(struct live *l, const struct grant_kind *kind, const struct grant_row *of,
                 struct grant_plan *p, struct err *err) {
    struct grant_row row = {.created_ms = wall_ms(), .expires_ms = of->expires_ms};
    snprintf(row.id, sizeof(row.id), "%s", id_new('g').text);
    snprintf(row.kind, sizeof(row.kind), "%s", kind->name);
    if (kind->renew(l, of, &row, err) < 0) {
        grant_row_done(&row);
        return -1;
    }
    grant_plan_add(p, &row, -1, false);
    return 0;
}

/* Copies the rows of the source to the fork. Rows that cannot be shared become new ones in *p. */
static int plan_inherit(struct live *l, const struct live *from, struct grant_plan *p,
                        struct err *err) {
    struct grant_list list DEFER(grant_list_done) = {0};
    struct bases recorded;
    bases_load(from, &recorded); /* the fork cannot find them: it has no steps of its source */
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
        p->inherited++;
    }
    return 0;
}

int grants_settle_all(struct live *l, const struct live *from, struct grant_plan *p,
                      struct err *err) {
    struct store *store = l->service->store;
    char *env DEFER_FREE = live_env_copy(l);
    if (store_begin(store, err) < 0)
        return -1;
    int r = from ? plan_inherit(l, from, p, err) : 0;
    for (size_t i = 0; r == 0 && i < p->count; i++)
        r = grants_settle(l, &p->rows[i], err);
    if (r == 0 && store_commit(store, err) == 0)
        return 0;
    store_rollback(store);
    live_put_env(l, TAKE(env));
    return -1;
}

int grants_write(struct live *l, const struct caller *who, const struct live *from,
                 struct grant_plan *p, struct err *err) {
    if (!from && !p->count)
        return 0;
    if (grants_settle_all(l, from, p, err) < 0)
        return -1;
    for (size_t i = 0; i < p->count; i++)
        grants_note(l, who, "grant.add", &p->rows[i]);
    for (size_t i = 0; i < p->count; i++)
        grants_count(l->service, p->rows[i].kind, GRANT_ADDED);
    grants_restore(l);
    return 0;
}

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
    struct delivering *d = xnew(struct delivering);
    *d = (struct delivering){.live = l, .plan = *p, .done = done, .arg = arg};
    *p = (struct grant_plan){0};
    live_ref(l);
    deliver_next(d, NULL);
}

/* Opens the data to copy: the descriptor that the caller sent, or a path below `roots`. */
static int open_copy(struct service *s, const struct caller *who, const struct grant_request *r,
                     int fd, bool *ret_ours, struct err *err) {
    const char *const own[] = {s->place->home, s->place->run, NULL};
    bool sends = rights_sends_files(who);
    *ret_ours = !sends;
    if (sends && fd < 0)
        return err_set(err, ERR_INVALID,
                       "the request passes no open file for '%.100s': send its file descriptor "
                       "with the request",
                       r->what);
    int file = sends ? fd : roots_open(s, who, r->what, true, err);
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
