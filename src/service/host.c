#include "service/host.h"

#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "base/log.h"
#include "service/exec/live.h"
#include "service/rights.h"
#include "service/state.h"
#include "service/steps/live.h"

void service_host_status(struct service *s, service_text_fn *done, void *arg) {
    s->driver->status(s->host, done, arg);
}

bool service_may_tell(struct service *s, const struct caller *who, const char *machine) {
    return live_by_id(s, who, machine);
}

const char *limit_hit_name(enum limit_hit hit) {
    static const char *const names[] = {
        [HIT_MEMORY] = "memory", [HIT_TIME] = "time",   [HIT_LIFETIME] = "lifetime",
        [HIT_IDLE] = "idle",     [HIT_QUOTA] = "quota", [HIT_COMMANDS] = "commands",
    };
    return names[hit];
}

const char *fallback_name(enum fallback way) {
    static const char *const names[] = {
        [FELL_STEP_COPIED] = "step_copied",
        [FELL_STEP_WITHOUT_POINT] = "step_without_restore_point",
    };
    return names[way];
}

bool service_sees_all(const struct caller *who) {
    return authorise(who, RIGHT_LIST_ALL, NULL) == 0;
}

void service_count(struct service *s, const struct caller *who, struct service_counts *ret) {
    const char *owner = service_sees_all(who) ? NULL : who->owner;
    struct live *l;
    struct err err;
    memset(ret, 0, sizeof(*ret));
    if (store_machine_counts(s->store, owner, ret->machines, &err) < 0)
        log_line(LOG_WARN, "service", "%s", err.text);
    for (size_t at = 0; (l = map_next(&s->machines, &at));)
        if (!owner || strcmp(owner, l->row.owner) == 0)
            ret->commands += execs_running(l);
    if (owner)
        return;
    memcpy(ret->hits, s->hits, sizeof(ret->hits));
    steps_fallbacks(s, ret->fallbacks);
    store_stats(s->store, &ret->store);
    store_room(s->store, &ret->room);
}

const char *service_vm_kernel(const struct service *s) {
    return s->conf->vm_kernel;
}

void service_room(const struct service *s, const struct caller *who, struct room_view *ret) {
    *ret = (struct room_view){.home = service_sees_all(who) ? s->place->home : NULL};
    store_room(s->store, &ret->room);
    if (room_is_scarce(&ret->room))
        ret->remedy = "free space on that disk, for example with carrel rm or carrel image prune";
}

static int find_ended(struct service *s, const char *owner, const char *name, char ret[ID_SIZE],
                      struct err *err) {
    struct machine_list list DEFER(machine_list_done) = {0};
    const struct machine_filter filter = {
        .owner = owner, .name = name, .states = 1u << MACHINE_ENDED, .limit = 1};
    if (store_machine_list(s->store, &filter, &list, err) < 0)
        return -1;
    if (!list.count) {
        err_set(err, ERR_NOT_FOUND, "machine '%.80s' does not exist", name);
        return err_remedy(err, "list machines, also ended ones, with: carrel ls --all");
    }
    snprintf(ret, ID_SIZE, "%s", list.rows[0].id);
    return 0;
}

int service_audit_machine(struct service *s, const struct caller *who, const char *ref,
                          char ret[ID_SIZE], struct err *err) {
    struct machine_row row DEFER(machine_row_done) = {0};
    const char *owner = who->scopes & SCOPE_ADMIN ? NULL : who->owner;
    if (allow(who, SCOPE_READ, err) < 0)
        return -1;
    if (id_valid(ref, strlen(ref), 'm')) {
        snprintf(ret, ID_SIZE, "%s", ref);
        return 0;
    }
    if (store_machine_find(s->store, owner, ref, &row, err) < 0)
        return err->code == ERR_NOT_FOUND ? find_ended(s, owner, ref, ret, err) : -1;
    snprintf(ret, ID_SIZE, "%s", row.id);
    return 0;
}

int service_audit(struct service *s, const struct caller *who, struct journal_filter *filter,
                  char *ret_dir, size_t size, struct err *err) {
    if (allow(who, SCOPE_READ, err) < 0)
        return -1;
    if (!(who->scopes & SCOPE_ADMIN))
        filter->owner = who->owner;
    snprintf(ret_dir, size, "%s/journal", s->place->home);
    return 0;
}

void service_journal_head(const struct service *s, struct journal_head *ret) {
    store_journal_head(s->store, ret);
}

void service_each_disk(const struct service *s, const struct caller *who, service_disk_fn *each,
                       void *arg) {
    const struct live *l;
    for (size_t at = 0; (l = map_next(&s->machines, &at));)
        if (may_see(who, l->row.owner))
            each(arg, l->row.id, l->disk_bytes, steps_count(l));
}
