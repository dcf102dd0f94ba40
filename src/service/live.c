#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/calls/live.h"
#include "service/cells.h"
#include "service/exec/live.h"
#include "service/exec/plan.h"
#include "service/grants/live.h"
#include "service/images/live.h"
#include "service/models/live.h"
#include "service/net/live.h"
#include "service/rest.h"
#include "service/schema.h"
#include "service/state.h"
#include "service/steps/durable.h"
#include "service/steps/live.h"
#include "service/volumes/live.h"

/* Reads the environment from the JSON of the row. */
static void load_env(struct live *l) {
    json_t *env = l->row.env ? json_loads(l->row.env, 0, NULL) : NULL;
    const char *name;
    json_t *value;
    size_t n = json_object_size(env);
    if (!n) {
        json_decref(env);
        return;
    }
    l->env.v = xcalloc(2 * n + 1, sizeof(*l->env.v));
    json_object_foreach(env, name, value) {
        if (!json_is_string(value))
            continue;
        l->env.v[l->env.count++] = name;
        l->env.v[l->env.count++] = json_string_value(value);
    }
    l->env_json = env;
}

char *live_env_copy(const struct live *l) {
    return l->row.env ? xstrdup(l->row.env) : NULL;
}

void live_put_env(struct live *l, char *text) {
    free(l->row.env);
    l->row.env = text;
    json_decref(l->env_json);
    free(l->env.v);
    l->env_json = NULL;
    l->env = (struct texts){0};
    load_env(l);
}

static char *change_env(const struct live *l, const struct env_change *changes, size_t n,
                        struct err *err) {
    json_t *env = alloc_check(l->env_json ? json_deep_copy(l->env_json) : json_object());
    char *text = NULL;
    size_t i = 0;
    for (; i < n; i++)
        if (!changes[i].value)
            json_object_del(env, changes[i].name);
        else if (json_object_set_new(env, changes[i].name, json_string(changes[i].value)) < 0)
            break;
    if (i < n)
        err_set(err, ERR_INVALID, "the value of environment variable '%.60s' is not UTF-8",
                changes[i].name);
    else
        text = alloc_check(json_dumps(env, JSON_COMPACT));
    json_decref(env);
    return text;
}

int live_set_env(struct live *l, const struct env_change *changes, size_t n, struct err *err) {
    char *before = l->row.env, *text = change_env(l, changes, n, err);
    if (!text)
        return -1;
    if (strlen(text) > STORE_JSON_MAX) {
        free(text);
        return err_set(err, ERR_LIMIT, "the environment variables of the machine exceed %d MiB",
                       STORE_JSON_MAX >> 20);
    }
    l->row.env = text;
    int r = store_machine_update(l->service->store, &l->row, err);
    l->row.env = before;
    if (r == 0)
        live_put_env(l, text);
    else
        free(text);
    return r;
}

static void load_image(struct live *l) {
    struct err err;
    if (!image_id_valid(l->row.image))
        return;
    l->image = live_image_load(l->service, l->row.owner, l->row.image, &err);
    if (!l->image)
        log_line(LOG_WARN, "service", "%s id=%s", err.text, l->row.id);
}

const struct exec_defaults *live_defaults(const struct live *l) {
    return l->image ? live_image_defaults(l->image) : NULL;
}

void live_user(const struct live *l, uint32_t *ret_uid, uint32_t *ret_gid) {
    const struct exec_defaults *image = live_defaults(l);
    *ret_uid = image ? image->uid : 1000;
    *ret_gid = image ? image->gid : 1000;
}

void live_set_lifetime(struct live *l, uint64_t left_ms) {
    l->expires_ms = left_ms ? boot_ms() + left_ms : 0;
}

uint64_t live_deadline(const struct machine_row *row, uint64_t left_ms) {
    return row->on_ttl == TTL_PAUSE ? 0 : left_ms;
}

uint64_t live_time_left(const struct live *l) {
    uint64_t now = boot_ms();
    return !l->expires_ms ? 0 : l->expires_ms > now ? l->expires_ms - now : 1;
}

bool live_is_over(const struct live *l, int64_t ago_ms) {
    return l->expires_ms && (int64_t)boot_ms() - ago_ms >= (int64_t)l->expires_ms;
}

/* Estimates the time left from the row; adopt.c uses the exact value of an existing box. */
static uint64_t left_by_row(const struct machine_row *row) {
    int64_t left = row->created_ms + (int64_t)row->ttl_ms - wall_ms();
    return !row->ttl_ms ? 0 : left > 1 ? (uint64_t)left : 1;
}

struct live *live_new(struct service *s, struct machine_row *row) {
    struct live *l = xnew(struct live);
    l->service = s;
    l->refs = 1;
    l->row = *row;
    l->execs = live_execs_new();
    l->net = live_net_new();
    l->grants = live_grants_new();
    live_set_lifetime(l, left_by_row(row));
    row->metadata = row->env = row->warnings = NULL;
    load_env(l);
    load_image(l);
    steps_init(l);
    map_put(&s->machines, l->row.id, l);
    l->gate = gate_add(net_gate(s), l->row.id);
    return l;
}

void live_ref(struct live *l) {
    l->refs++;
}

void live_unref(struct live *l) {
    if (--l->refs)
        return;
    gate_remove(l->gate);
    models_detach(l);
    expose_detach(l);
    if (l->machine)
        machine_free(l->machine);
    machine_row_done(&l->row);
    json_decref(l->env_json);
    free(l->env.v);
    live_execs_free(l->execs);
    live_calls_free(l->calls);
    live_net_free(l->net);
    live_grants_free(l->grants);
    ending_free(l->ending);
    steps_free(l);
    free(l->cwd);
    live_image_free(l->image);
    tool_counts_done(&l->tool_calls);
    free(l);
}

void live_verb_over(struct live *l) {
    if (l->row.state != MACHINE_ENDING && l->row.state != MACHINE_ENDED)
        l->changing = false;
    rest_settled(l);
}

void machine_row_view(const struct machine_row *row, struct machine_view *ret) {
    *ret = (struct machine_view){
        .id = row->id,
        .name = row->name[0] ? row->name : NULL,
        .owner = row->owner,
        .kind = row->kind,
        .image = row->image,
        .image_id = image_id_valid(row->image) ? row->image : NULL,
        .state = machine_state_name(row->state),
        .state_by = row->state == MACHINE_PAUSED || row->state == MACHINE_STOPPED
                        ? state_by_name(row->state_by)
                        : NULL,
        .reason = row->end_reason[0] ? row->end_reason : NULL,
        .created_ms = (uint64_t)row->created_ms,
        .ended_ms = (uint64_t)row->ended_ms,
        .expires_ms = row->ttl_ms ? (uint64_t)row->created_ms + row->ttl_ms : 0,
        .limits = {row->mem_bytes, row->cpu_milli, row->pids, row->disk_bytes,
                   row->fuel ? row->fuel : SHOW_UNCOUNTED,
                   row->fuel_rate ? row->fuel_rate : SHOW_UNCOUNTED},
        .on_ttl = row->ttl_ms ? ttl_action_name((enum ttl_action)row->on_ttl) : NULL,
        .idle_ms = row->idle_ms,
        .idle_action = row->idle_ms ? idle_action_name(row->idle_action) : NULL,
        .steps = step_policy_name(row->steps),
        .allow = row->allowed[0] ? row->allowed : NULL,
        .metadata = row->metadata,
        .warnings = row->warnings && *row->warnings ? row->warnings : NULL,
    };
}

const char *live_start_dir(const struct live *l) {
    return l->cwd ? l->cwd : l->image ? live_defaults(l)->cwd : "/home/user";
}

void live_view(const struct live *l, struct machine_view *ret) {
    machine_row_view(&l->row, ret);
    if (l->image)
        ret->image = live_image_name(l->image);
    ret->home = l->image ? live_defaults(l)->home : "/home/user";
    ret->cwd = live_is_cell(l) ? "/" : live_start_dir(l);
    ret->commands = execs_shown(l);
    ret->disk_bytes = l->disk_bytes;
    ret->step_count = steps_count(l);
    ret->drifted = l->drifted;
    ret->undurable = durable_why(l);
    const struct err *lost = l->machine ? guest_why_gone(l->machine->guest) : NULL;
    if (l->row.state == MACHINE_PAUSED) {
        ret->paused_in = l->dormant ? "disk" : "memory";
        ret->paused_why = !l->dormant && l->paused_why[0] ? l->paused_why : NULL;
    }
    ret->start = l->machine ? l->machine->start : NULL;
    ret->accel = l->machine ? l->machine->accel : NULL;
    ret->unreached = !l->reach.heard && l->reach.why[0] ? l->reach.why : lost ? lost->text : NULL;
}

/* Finds ended machines too, so that callers can answer `gone` instead of `not_found`. */
int live_row_find(struct service *s, const struct caller *who, const char *ref,
                  struct machine_row *ret, struct err *err) {
    const char *owner = who->scopes & SCOPE_ADMIN ? NULL : who->owner;
    if (store_machine_find(s->store, owner, ref, ret, err) == 0)
        return 0;
    if (err && err->code == ERR_NOT_FOUND)
        err_remedy(err, "list yours with: carrel ls");
    return -1;
}

struct live *live_by_id(struct service *s, const struct caller *who, const char *id) {
    struct live *l = id_valid(id, strlen(id), 'm') ? map_get(&s->machines, id) : NULL;
    return l && may_see(who, l->row.owner) ? l : NULL;
}

int live_state_error(const struct live *l, struct err *err) {
    if (l->reach.why[0] && !l->machine) {
        err_set(err, ERR_BUSY, "machine '%s' is unreachable: %s", l->row.id, l->reach.why);
        if (map_get(&l->service->strays, l->row.id)) /* reach.why says what to do */
            return -1;
        return err_remedy(err, "wait, the daemon keeps trying; or delete the machine: carrel rm %s",
                          l->row.id);
    }
    if (live_falls(l)) {
        err_set(err, ERR_BUSY, "machine '%s' is being stopped: %s", l->row.id, FALL_KILLED);
        return err_remedy(err, "when it is stopped, resume it: carrel resume %s", l->row.id);
    }
    bool told = l->row.state == MACHINE_STOPPED && l->row.end_reason[0];
    err_set(err, ERR_BUSY, "machine '%s' is %s%s%s", l->row.id, machine_state_name(l->row.state),
            told ? ": " : "", told ? l->row.end_reason : "");
    if (l->row.state == MACHINE_PAUSED || l->row.state == MACHINE_STOPPED)
        err_remedy(err, "resume it first: carrel resume %s", l->row.id);
    return -1;
}

struct live *live_find(struct service *s, const struct caller *who, const char *ref,
                       enum live_need need, struct err *err) {
    struct live *l = live_by_id(s, who, ref);
    if (!l) {
        struct machine_row row DEFER(machine_row_done) = {0};
        if (live_row_find(s, who, ref, &row, err) < 0)
            return NULL;
        l = map_get(&s->machines, row.id);
        if (!l) {
            err_set(err, ERR_GONE, "machine '%s' has ended: %s", row.id,
                    row.end_reason[0] ? row.end_reason : "no reason recorded");
            return NULL;
        }
    }
    if (!who->has_volumes && volume_serves(s, l->row.id)) {
        err_set(err, ERR_NOT_FOUND, "machine '%s' serves the files of a volume, and nothing else",
                l->row.id);
        return NULL;
    }
    bool fit =
        need == LIVE_ANY || (l->machine && (l->row.state == MACHINE_RUNNING ||
                                            (need == LIVE_UP && l->row.state == MACHINE_PAUSED)));
    if (!fit) {
        live_state_error(l, err);
        return NULL;
    }
    return l;
}
