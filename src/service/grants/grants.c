#include "service/grants/grants.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/grants/databases_inner.h"
#include "service/grants/inner.h"
#include "service/net/live.h"
#include "service/rights.h"

enum { LIST_MAX_BYTES = 4 << 20 };

struct service_grants *service_grants_new(struct service *s) {
    struct service_grants *g = xnew(struct service_grants);
    g->databases = databases_new(s);
    g->copies_unswept = true;
    return g;
}

void service_grants_stop(struct service_grants *g) {
    databases_free(g->databases);
}

void service_grants_free(struct service *s) {
    sqlite_fetch_release(s); /* fails pending reads of databases: machines no longer answer */
    sqlite_look(s);          /* machines may have ended since the last tick */
    free(s->grants);
}

struct live_grants *live_grants_new(void) {
    struct live_grants *g = xnew(struct live_grants);
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

static const struct grant_kind *const kinds[] = {
    &grant_dir,      &grant_file,   &grant_env,      &grant_secret, &grant_repo,
    &grant_identity, &grant_sqlite, &grant_postgres, &grant_volume, &grant_login};
enum { KINDS = sizeof(kinds) / sizeof(*kinds) };
_Static_assert(sizeof(kinds) / sizeof(*kinds) <= GRANT_KINDS_MAX, "each kind is counted");

void grants_count(struct service *s, const char *kind, enum grant_fate fate) {
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(kinds[i]->name, kind) == 0)
            s->grants->fates[i][fate]++;
}

const struct grant_kind *grant_kind_find(const char *name, struct err *err) {
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    err_set(err, ERR_INVALID, "unknown kind of grant '%.40s'", name);
    return NULL;
}

/* ---- grants as JSON, and from requests ---- */

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

const char *grants_describe(const struct grant_row *row, struct buf *text) {
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
    *row = (struct grant_row){.created_ms = wall_ms()};
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

/* ---- journal and restart ---- */

void grants_note(struct live *l, const struct caller *who, const char *verb,
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

void grants_restore(struct live *l) {
    struct err err;
    secrets_restore(l);
    postgres_restore(l);
    grants_restore_start(l);
    if (store_grant_due(l->service->store, l->row.id, &l->grants->due_ms, &err) < 0)
        log_line(LOG_ERROR, "service", "list the grants of a machine: %s id=%s", err.text,
                 l->row.id);
}

/* ---- requests ---- */

void grants_answer(struct live *l, service_net_fn *done, void *arg) {
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

/* For an ended machine, lists databases that could not be dropped. If none, answers error `why`. */
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

bool grant_wants_file(const struct grant_request *r) {
    const struct grant_kind *kind = grant_kind_find(r->kind, NULL);
    return kind && kind->copies;
}

/* ---- statistics ---- */

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
