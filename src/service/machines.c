#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/parse.h"
#include "service/asleep.h"
#include "service/images/live.h"
#include "service/models/live.h"
#include "service/rights.h"
#include "service/schema.h"
#include "service/state.h"
#include "service/steps/live.h"
#include "service/volumes/live.h"
#include "store/steps.h"

/* ---- show and list ---- */

char *service_machine_env(struct service *s, const struct caller *who, const char *machine,
                          struct err *err) {
    const struct live *l =
        allow(who, SCOPE_READ, err) < 0 ? NULL : live_find(s, who, machine, LIVE_ANY, err);
    char *env = l ? live_env_copy(l) : NULL;
    return env || !l ? env : xstrdup("{}");
}

void service_show(struct service *s, const struct caller *who, const char *ref,
                  service_machine_fn *done, void *arg) {
    struct machine_row row DEFER(machine_row_done) = {0};
    struct buf volumes DEFER(buf_done) = BUF(VOLUMES_OF_MAX);
    struct machine_view view;
    struct err err;
    struct live *l = live_by_id(s, who, ref);
    if (allow(who, SCOPE_READ, &err) < 0) {
        done(arg, NULL, &err);
    } else if (l) {
        live_view(l, &view);
        view.volumes = volumes_of(s, l->row.id, &volumes);
        done(arg, &view, NULL);
    } else if (live_row_find(s, who, ref, &row, &err) < 0) {
        done(arg, NULL, &err);
    } else {
        if ((l = map_get(&s->machines, row.id)))
            live_view(l, &view);
        else
            machine_row_view(&row, &view);
        view.volumes = l ? volumes_of(s, l->row.id, &volumes) : NULL;
        done(arg, &view, NULL);
    }
}

void service_look(struct service *s, const struct caller *who, const char *ref,
                  service_machine_fn *done, void *arg) {
    struct err err;
    uint64_t steps, bytes;
    struct live *l =
        allow(who, SCOPE_READ, &err) < 0 ? NULL : live_find(s, who, ref, LIVE_ANY, &err);
    if (l && store_step_count(s->store, l->row.id, &steps, &bytes, &err) == 0)
        steps_set_count(l, steps);
    service_show(s, who, ref, done, arg);
}

static int parse_states(const char *text, unsigned *ret, struct err *err) {
    *ret = 0;
    if (strcmp(text, "all") == 0) {
        *ret = MACHINE_STATES_ALL;
        return 0;
    }
    while (*text) {
        char name[32];
        enum machine_state state;
        size_t n = strcspn(text, ",");
        snprintf(name, sizeof(name), "%.*s", (int)n, text);
        if (machine_state_parse(name, &state, err) < 0)
            return -1;
        *ret |= 1u << state;
        text += n + (text[n] == ',');
    }
    return 0;
}

int list_cursor(const char *text, uint64_t max, uint64_t *ret, struct err *err) {
    if (parse_u64(text, 1, max, ret, NULL) == 0)
        return 0;
    err_set(err, ERR_INVALID, "cursor '%.40s' is not valid for this list", text);
    return err_remedy(err, "use `next` of the previous page, or leave the cursor out");
}

static bool is_door(const struct service *s, const struct machine_row *row) {
    return row->state >= MACHINE_ENDING ? volume_served(s, row->id) : volume_serves(s, row->id);
}

int service_list(struct service *s, const struct caller *who, const struct list_request *r,
                 service_row_fn *row, void *arg, char ret_next[CURSOR_SIZE], struct err *err) {
    struct machine_filter filter = {
        .owner = r->all_owners ? NULL : who->owner,
        .name = r->name,
        .kind = r->kind,
        .meta_key = r->meta_key,
        .meta_value = r->meta_value,
        .limit = r->limit,
    };
    struct machine_list list DEFER(machine_list_done) = {0};
    if (allow(who, SCOPE_READ, err) < 0 ||
        (r->all_owners && authorise(who, RIGHT_LIST_ALL, err) < 0) ||
        (r->states && parse_states(r->states, &filter.states, err) < 0) ||
        (r->cursor && list_cursor(r->cursor, STORE_NUMBER_MAX, &filter.before, err) < 0) ||
        store_machine_list(s->store, &filter, &list, err) < 0)
        return -1;
    ret_next[0] = '\0';
    for (size_t i = 0; i < list.count; i++) {
        struct machine_view view;
        const struct live *l = map_get(&s->machines, list.rows[i].id);
        if (is_door(s, &list.rows[i]))
            continue;
        if (l)
            live_view(l, &view);
        else
            machine_row_view(&list.rows[i], &view);
        row(arg, &view);
    }
    if (list.count + list.damaged >= (r->limit ? r->limit : 100))
        snprintf(ret_next, CURSOR_SIZE, "%" PRIu64, list.last);
    return 0;
}

int service_changes(struct service *s, const struct caller *who, const char *ref, int *ret_fds,
                    size_t max, size_t *ret_count, struct err *err) {
    struct live *l = allow(who, SCOPE_RUN, err) < 0 ? NULL : live_find(s, who, ref, LIVE_ANY, err);
    if (!l || !l->machine)
        return l ? live_state_error(l, err) : -1;
    if (l->machine->uppers_lost) {
        err_set(err, ERR_UNSUPPORTED,
                "changes of machine '%s' in granted directories are inaccessible: its spawner died",
                l->row.id);
        return err_remedy(err, "copy the files out with `carrel cp`");
    }
    *ret_count = 0;
    for (size_t i = 0; i < PLAN_MAX_GRANTS && *ret_count < max; i++)
        if (l->machine->uppers[i] >= 0)
            ret_fds[(*ret_count)++] = l->machine->uppers[i];
    return 0;
}

size_t service_machine_count(const struct service *s) {
    return s->machines.count + builds_count(s);
}

/* ---- stats ---- */

struct stats_call {
    struct live *live;
    service_stats_fn *done;
    void *arg;
};

static void note_stats(struct live *l, const struct machine_stats *stats) {
    if (!stats)
        return;
    l->drifted = stats->drifted;
    l->disk_bytes = stats->disk_bytes;
}

static void stats_fill(const struct machine_stats *from, struct stats_view *ret) {
    const uint64_t none = SHOW_UNCOUNTED;
    *ret = (struct stats_view){
        .cpu_us = from->has_cpu ? from->cpu_us : none,
        .mem_bytes = from->has_memory ? from->mem_bytes : none,
        .mem_peak_bytes = from->has_memory ? from->mem_peak_bytes : none,
        .mem_limit_bytes = from->has_memory ? from->mem_limit_bytes : none,
        .pids = from->has_pids ? from->pids : none,
        .io_bytes = from->has_cpu ? from->io_bytes : none,
        .disk_bytes = from->disk_bytes,
        .oom_kills = from->has_memory ? from->oom_kills : none,
        .pids_refused = from->has_pids ? from->pids_refused : none,
        .lookups_refused = from->lookups_refused,
        .frozen = from->frozen,
    };
}

static void stats_are(void *arg, const struct machine_stats *stats, const struct err *err) {
    struct stats_call *c = arg;
    struct stats_view view = {0};
    struct buf models DEFER(buf_done) = BUF(1024), tools DEFER(buf_done) = BUF(16 << 10);
    struct jot j = JOT(&models), k = JOT(&tools);
    note_stats(c->live, stats);
    if (stats) {
        stats_fill(stats, &view);
        view.models = models_put(c->live, &j) ? models.data : NULL;
        tool_counts_put(&c->live->tool_calls, &k, NULL);
        view.tools = c->live->tool_calls.count && !k.failed ? tools.data : NULL;
    }
    c->done(c->arg, stats ? &view : NULL, err);
    live_unref(c->live);
    free(c);
}

void service_stats(struct service *s, const struct caller *who, const char *ref,
                   service_stats_fn *done, void *arg) {
    struct err err;
    struct live *l =
        allow(who, SCOPE_READ, &err) < 0 ? NULL : live_find(s, who, ref, LIVE_ANY, &err);
    bool sleeps = l && live_is_asleep(l);
    if (l && !l->machine && !sleeps) {
        live_state_error(l, &err);
        l = NULL;
    }
    if (!l) {
        done(arg, NULL, &err);
        return;
    }
    struct stats_call *c = xnew(struct stats_call);
    *c = (struct stats_call){l, done, arg};
    live_ref(l);
    if (sleeps)
        stats_are(c, &(struct machine_stats){.disk_bytes = l->disk_bytes}, NULL);
    else
        s->driver->stats(l->machine, stats_are, c);
}
