#include "service/strays.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/image_id.h"
#include "base/limits.h"
#include "base/log.h"
#include "service/net/live.h"
#include "service/state.h"
#include "service/steps/live.h"
#include "service/taint.h"
#include "store/networks.h"
#include "store/steps.h"

enum { POLICY_TEXT_MAX = 1 << 16 };

static const char stray_source[] = "another store";

struct stray {
    struct plan_found found;
    enum stray_kind kind;
    char why[200];
};

void strays_add(struct service *s, enum stray_kind kind, const struct plan_found *found,
                const char *why) {
    if (map_get(&s->strays, found->id))
        return;
    struct stray *st = xnew(struct stray);
    *st = (struct stray){.found = *found, .kind = kind};
    snprintf(st->why, sizeof(st->why), "%s", why ? why : "");
    map_put(&s->strays, st->found.id, st);
    log_line(LOG_WARN, "service", "box '%s' is left alone: %s%s; see: carrel store boxes",
             found->id,
             kind == STRAY_NO_ROW    ? "it is not in the database"
             : kind == STRAY_DAMAGED ? "its row cannot be read: "
                                     : "it belongs to store ",
             kind == STRAY_OTHERS    ? found->store
             : kind == STRAY_DAMAGED ? st->why
                                     : "");
}

bool strays_may_sweep(const struct service *s) {
    return s->listed && s->strays.count == 0;
}

void strays_free(struct service *s) {
    struct stray *st;
    for (size_t at = 0; (st = map_next(&s->strays, &at));)
        free(st);
    map_done(&s->strays);
}

static const char *reason_of(const struct service *s, const struct stray *st) {
    if (st->kind == STRAY_DAMAGED)
        return st->why;
    if (!st->found.store[0])
        return "it is not in the database, and it names no store";
    return strcmp(st->found.store, store_id(s->store)) == 0
               ? "it is not in the database, but it was created with this store"
               : "it belongs to another store";
}

const char *service_store_id(const struct service *s) {
    return store_id(s->store);
}

size_t service_stray_count(const struct service *s, const struct caller *who) {
    return who->scopes & SCOPE_ADMIN ? s->strays.count : 0;
}

int service_strays(struct service *s, const struct caller *who, service_stray_fn *each, void *arg,
                   struct err *err) {
    const struct stray *st;
    if (allow(who, SCOPE_ADMIN, err) < 0)
        return -1;
    for (size_t at = 0; (st = map_next(&s->strays, &at));) {
        const struct stray_view view = {.id = st->found.id,
                                        .store = st->found.store[0] ? st->found.store : NULL,
                                        .reason = reason_of(s, st),
                                        .adoptable = st->kind != STRAY_DAMAGED};
        each(arg, &view);
    }
    return 0;
}

/* ---- adopting a stray box ---- */

struct taking {
    struct service *service;
    struct caller who;
    struct stray *stray; /* removed from the map, so that it is taken over only once */
    uint64_t intent;
    service_machine_fn *done;
    void *arg;
};

static struct journal_record taking_record(const struct taking *t) {
    return (struct journal_record){.verb = "machine.adopt", .machine = t->stray->found.id};
}

static void taking_free(struct taking *t) {
    free(t->stray);
    free(t);
}

/* Puts the stray back into the map, unless its box is gone. */
static void taking_fail(struct taking *t, const struct err *err) {
    struct journal_record what = taking_record(t);
    note_result(t->service, &t->who, &what, t->intent, err);
    t->done(t->arg, NULL, err);
    if (err->code != ERR_NOT_FOUND && err->code != ERR_GONE) {
        map_put(&t->service->strays, t->stray->found.id, t->stray);
        t->stray = NULL;
    }
    taking_free(t);
}

/* Builds the row of a stray box from known values, with defaults for the rest. */
static struct machine_row row_of(const struct taking *t) {
    const struct plan_found *f = &t->stray->found;
    struct machine_row row = {
        .state = MACHINE_RUNNING,
        .created_ms = wall_ms(),
        .mem_bytes = !f->mem_bytes                            ? LIMIT_MEM
                     : f->vm && f->mem_bytes > LIMIT_VM_EXTRA ? f->mem_bytes - LIMIT_VM_EXTRA
                                                              : f->mem_bytes,
        .cpu_milli = f->cpu_milli,
        .pids = f->pids ? f->pids : LIMIT_PIDS,
        .disk_bytes = f->disk_bytes ? f->disk_bytes : LIMIT_DISK,
        .ttl_ms = f->left_ms,
        .idle_action = (enum idle_action)t->service->conf->idle_action,
        .steps = STEPS_MANUAL,
        .metadata = xstrdup("{}"),
        .env = xstrdup("{}"),
    };
    memcpy(row.id, f->id, sizeof(row.id));
    snprintf(row.owner, sizeof(row.owner), "%s", t->who.owner);
    snprintf(row.token, sizeof(row.token), "%s", t->who.token);
    snprintf(row.kind, sizeof(row.kind), "%s", f->vm ? "vm" : "box");
    snprintf(row.image, sizeof(row.image), "%s", f->image[0] ? f->image : "host");
    return row;
}

/*
 * It is unknown what the box has read and who allowed its network. So it becomes guarded and
 * tainted, without network rules.
 */
static int write_network(struct store *store, const char *id, struct err *err) {
    struct policy p DEFER(policy_done) = {.guarded = true};
    struct buf text DEFER(buf_done) = BUF(POLICY_TEXT_MAX);
    struct jot j = JOT(&text);
    policy_taint(&p, 0, stray_source, wall_ms());
    policy_write(&p, &j, NULL);
    if (j.failed)
        return err_set(err, ERR_LIMIT, "out of memory");
    return store_network_set(store, id, text.data, err);
}

/* Returns the number of the topmost layer of the box's root. */
static uint32_t layer_of(const struct taking *t, const struct machine_row *row) {
    uint32_t layer = (uint32_t)t->stray->found.layer;
    return layer ? layer : image_id_valid(row->image) ? 2 : 1;
}

static int write_taken(const struct taking *t, const struct machine_row *row, const char *stack,
                       struct err *err) {
    struct store *store = t->service->store;
    char existing[ID_SIZE];
    struct root_row root = {.layer = layer_of(t, row), .stack = (char *)stack};
    memcpy(root.machine, row->id, sizeof(root.machine));
    if (store_begin(store, err) < 0)
        return -1;
    if (store_machine_add(store, row, existing, err) == 0 &&
        store_root_put(store, &root, err) == 0 && write_network(store, row->id, err) == 0 &&
        store_commit(store, err) == 0)
        return 0;
    store_rollback(store);
    return -1;
}

/*
 * Returns a new machine, or the live one if this store has its row. Restores the network only once.
 */
static struct live *strays_take(struct taking *t, const char *stack, struct err *err) {
    struct service *s = t->service;
    struct live *l = map_get(&s->machines, t->stray->found.id);
    struct machine_row row DEFER(machine_row_done) = {0};
    if (!l) {
        row = row_of(t);
        if (write_taken(t, &row, stack, err) < 0)
            return NULL;
        l = live_new(s, &row);
        net_restore(l);
        return l;
    }
    gate_policy(l->gate)->guarded = true;
    if (taint_join(l, TAINT_UNTRUSTED, stray_source, err) < 0 || net_keep(l, err) < 0 ||
        steps_root_put(l, layer_of(t, &l->row), stack, err) < 0)
        return NULL;
    /* The other store may have taken steps since: use the root of the box. */
    steps_root_known(l, layer_of(t, &l->row), stack);
    return l;
}

static void taken(void *arg, const char *stack, const struct err *failed) {
    struct taking *t = arg;
    struct service *s = t->service;
    struct err err;
    struct live *l = failed ? NULL : strays_take(t, stack, &err);
    if (!l) {
        taking_fail(t, failed ? failed : &err);
        return;
    }
    struct journal_record what = taking_record(t);
    note_result(s, &t->who, &what, t->intent, NULL);
    event_tell(s, l->row.owner, l->row.id, "machine.adopted", NULL);
    adopt_taken(l, t->done, t->arg);
    taking_free(t);
}

void service_stray_adopt(struct service *s, const struct caller *who, const char *id,
                         service_machine_fn *done, void *arg) {
    struct err err;
    const struct stray *st = map_get(&s->strays, id);
    int r = allow(who, SCOPE_ADMIN, &err);
    if (r == 0 && !st) {
        err_set(&err, ERR_NOT_FOUND, "box '%.40s' does not exist or cannot be adopted", id);
        r = err_remedy(&err, "list them with: carrel store boxes");
    }
    if (r == 0 && st->kind == STRAY_DAMAGED) {
        err_set(&err, ERR_INVALID, "the row of machine '%s' in carrel.db is damaged: %s", id,
                st->why);
        r = err_remedy(&err, "restore carrel.db from a backup");
    }
    struct taking *t = xnew(struct taking);
    const struct journal_record what = {.verb = "machine.adopt", .machine = id};
    if (r < 0 || note_intent(s, who, &what, &t->intent, &err) < 0) {
        free(t);
        done(arg, NULL, &err);
        return;
    }
    *t = (struct taking){s, *who, map_take(&s->strays, id), t->intent, done, arg};
    s->driver->claim(s->host, t->stray->found.id, taken, t);
}
