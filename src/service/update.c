#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "service/cells.h"
#include "service/change.h"
#include "service/fields.h"
#include "service/models/live.h"
#include "service/net/live.h"
#include "service/rights.h"
#include "service/vm/vms.h"

static int apply_update(struct live *l, const struct caller *who, const struct update_request *r,
                        struct machine_row *row, struct err *err) {
    *row = l->row;
    const struct machine_request limits = {
        .kind = l->row.kind, .image = l->row.image, .limits = r->limits, .allow = r->allow};
    if ((r->allow && authorise(who, RIGHT_UPDATE_ALLOW, err) < 0) ||
        cell_check_request(&limits, err) < 0 || vm_check_limits(l, &limits, err) < 0 ||
        (r->allow && cell_allow(r->allow, row, err) < 0))
        return -1;
    if (r->name && !machine_name_ok(r->name))
        return err_set(err, ERR_INVALID, "'%s' is not a valid machine name", r->name);
    if ((r->idle_action && idle_action_parse(r->idle_action, &row->idle_action, err) < 0) ||
        (r->on_ttl && on_ttl_parse(r->on_ttl, row, err) < 0))
        return -1;
    if (r->steps && step_policy_parse(r->steps, &row->steps, err) < 0)
        return -1;
    if (r->name)
        snprintf(row->name, sizeof(row->name), "%s", r->name);
    row->mem_bytes = given_or(r->limits.mem, row->mem_bytes);
    row->cpu_milli = given_or(r->limits.cpus, row->cpu_milli);
    row->pids = given_or(r->limits.pids, row->pids);
    row->disk_bytes = given_or(r->limits.disk, row->disk_bytes);
    row->fuel = given_or(r->limits.fuel, row->fuel);
    row->fuel_rate = given_or(r->limits.fuel_rate, row->fuel_rate);
    row->idle_ms = given_or(r->idle, row->idle_ms);
    if (r->ttl.is) /* the ttl counts from now in requests, from creation in rows */
        row->ttl_ms = r->ttl.value ? (uint64_t)(wall_ms() - row->created_ms) + r->ttl.value : 0;
    bool more = row->mem_bytes > l->row.mem_bytes || row->cpu_milli > l->row.cpu_milli ||
                row->disk_bytes > l->row.disk_bytes || r->ttl.is || row->on_ttl != l->row.on_ttl;
    return more ? quota_check(l->service, who, &l->row, row, err) : 0;
}

struct update {
    struct change *change;
    struct machine_row row; /* requested values; its texts belong to the live row */
    char *metadata;
    struct given ttl;
};

static void update_finish(struct update *u, const struct err *err) {
    struct change *c = u->change;
    free(u->metadata);
    free(u);
    change_finish(c, err);
}

static void update_told(void *arg, const struct err *err) {
    update_finish(arg, err);
}

/*
 * Puts the requested values into the present row, which may have changed: a full disk may have
 * delayed the update.
 */
static struct machine_row updated_row(const struct update *u) {
    struct machine_row row = u->change->live->row;
    const struct machine_row *wanted = &u->row;
    memcpy(row.name, wanted->name, sizeof(row.name));
    row.mem_bytes = wanted->mem_bytes;
    row.cpu_milli = wanted->cpu_milli;
    row.pids = wanted->pids;
    row.disk_bytes = wanted->disk_bytes;
    row.fuel = wanted->fuel;
    row.fuel_rate = wanted->fuel_rate;
    row.ttl_ms = wanted->ttl_ms;
    row.on_ttl = wanted->on_ttl;
    row.idle_ms = wanted->idle_ms;
    row.idle_action = wanted->idle_action;
    row.steps = wanted->steps;
    memcpy(row.allowed, wanted->allowed, sizeof(row.allowed));
    if (u->metadata)
        row.metadata = u->metadata;
    return row;
}

static int write_update(void *arg, struct err *err) {
    struct update *u = arg;
    const struct live *l = u->change->live;
    const struct machine_row row = updated_row(u);
    return store_machine_update(l->service->store, &row, err) < 0
               ? -1
               : event_put(l->service, l->row.owner, l->row.id, "machine.updated", NULL, err);
}

static void update_written(void *arg, const struct err *failed) {
    struct update *u = arg;
    struct live *l = u->change->live;
    if (failed) {
        update_finish(u, failed);
        return;
    }
    const struct machine_row row = updated_row(u);
    if (u->metadata) {
        free(l->row.metadata);
        u->metadata = NULL;
    }
    l->row = row;
    if (u->ttl.is)
        live_set_lifetime(l, u->ttl.value);
    if (l->machine)
        net_tell(l, update_told, u);
    else
        update_finish(u, NULL);
}

static void update_write(void *arg, const struct err *failed) {
    struct update *u = arg;
    if (failed) {
        update_finish(u, failed);
        return;
    }
    change_commit(u->change, write_update, update_written, u);
}

static void update_deadline(void *arg, const struct err *failed) {
    struct update *u = arg;
    struct live *l = u->change->live;
    bool is_same = !u->ttl.is && u->row.on_ttl == l->row.on_ttl;
    uint64_t left_ms = u->ttl.is ? u->ttl.value : live_time_left(l);
    if (failed || is_same || !l->machine)
        update_write(u, failed);
    else
        l->service->driver->set_deadline(l->machine, live_deadline(&u->row, left_ms), update_write,
                                         u);
}

/* Reads the metadata of the request. An empty object clears the metadata of the machine. */
static int new_metadata(const struct update_request *r, char **ret, struct err *err) {
    if (pairs_json(&r->metadata, "metadata", ret, err) < 0)
        return -1;
    if (r->metadata.v && !*ret)
        *ret = xstrdup("{}");
    return 0;
}

/* Only the owner may change the model budget of a machine, never an agent inside it. */
static int change_models(struct live *l, const struct caller *who, const struct models_request *r,
                         struct err *err) {
    if (r->allow && !r->tokens.is && !r->money.is) {
        err_set(err, ERR_INVALID, "access to models is controlled by a network rule");
        return err_remedy(err, "carrel net %s allow http://models.carrel", l->row.id);
    }
    if (!r->tokens.is && !r->money.is)
        return 0;
    return authorise(who, RIGHT_UPDATE_MODELS, err) < 0 ? -1 : models_limit(l, r, err);
}

/* The end of a machine is in its row alone while it has no box. */
static bool is_about_end(const struct update_request *r) {
    const struct limits_request *n = &r->limits;
    bool limits = n->mem.is || n->cpus.is || n->pids.is || n->disk.is || n->fuel.is ||
                  n->fuel_rate.is || r->models.tokens.is || r->models.money.is || r->models.allow;
    return (r->ttl.is || r->on_ttl) && !limits && !r->name && !r->idle.is && !r->idle_action &&
           !r->steps && !r->allow && !r->metadata.v;
}

void service_update(struct service *s, const struct caller *who, const char *ref,
                    const struct update_request *r, service_machine_fn *done, void *arg) {
    enum change_kind kind = is_about_end(r) ? CHANGE_WAKES : CHANGE_LIVE;
    struct change *c = change_begin(s, who, ref, "machine.update", kind, done, arg);
    struct err err;
    if (!c)
        return;
    struct live *l = c->live;
    struct update *u = xnew(struct update);
    u->change = c;
    u->ttl = r->ttl;
    if (change_models(l, who, &r->models, &err) < 0 || new_metadata(r, &u->metadata, &err) < 0 ||
        apply_update(l, who, r, &u->row, &err) < 0) {
        update_finish(u, &err);
        return;
    }
    const struct machine_limits limits = {
        .mem_bytes = r->limits.mem.value,
        .cpu_milli = r->limits.cpus.value,
        .pids = r->limits.pids.value,
        .disk_bytes = r->limits.disk.value,
    };
    if (limits.mem_bytes || limits.cpu_milli || limits.pids || limits.disk_bytes)
        s->driver->limit(l->machine, &limits, update_deadline, u);
    else
        update_deadline(u, NULL);
}
