#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "service/exec/inner.h"
#include "service/exec/logs.h"

static struct exec *remembered(struct service *s, struct exec_row *row) {
    struct exec *x = exec_new(s);
    x->row = *row;
    row->argv = row->cwd = NULL;
    x->phase = EXEC_OVER;
    x->kept_file = logs_open(s->place->home, x->row.machine, x->row.id);
    if (x->kept_file >= 0 && outlog_open_kept(&x->kept, x->kept_file, NULL) < 0)
        close_fd(&x->kept_file);
    return x;
}

/* Says that the machine does not exist, if it does not; else that it has no such command. */
static struct exec *exec_missing(struct service *s, const struct caller *who, const char *machine,
                                 const char *id, struct err *err) {
    struct machine_row row DEFER(machine_row_done) = {0};
    if (live_row_find(s, who, machine, &row, err) < 0)
        return NULL;
    err_set(err, ERR_NOT_FOUND, "command '%.20s' does not exist in machine '%.60s'", id, machine);
    err_remedy(err, "list its commands with: carrel logs %.60s", machine);
    return NULL;
}

struct exec *service_exec_find(struct service *s, const struct caller *who, const char *machine,
                               const char *id, struct err *err) {
    struct exec_row row DEFER(exec_row_done) = {0};
    struct exec *x = id_valid(id, strlen(id), 'x') ? map_get(&s->execs->by_id, id) : NULL;
    if (allow(who, SCOPE_READ, err) < 0)
        return NULL;
    if (x && may_see(who, x->row.owner)) {
        exec_ref(x);
    } else if (!id_valid(id, strlen(id), 'x') || store_exec_get(s->store, id, &row, NULL) < 0 ||
               !may_see(who, row.owner)) {
        return exec_missing(s, who, machine, id, err);
    } else {
        x = remembered(s, &row);
    }
    struct live *l =
        strcmp(x->row.machine, machine) == 0 ? NULL : live_find(s, who, machine, LIVE_ANY, NULL);
    if (strcmp(x->row.machine, machine) != 0 && (!l || strcmp(l->row.id, x->row.machine) != 0)) {
        exec_unref(x);
        return exec_missing(s, who, machine, id, err);
    }
    return x;
}

static int machine_id_of(struct service *s, const struct caller *who, const char *ref,
                         char ret[ID_SIZE], struct err *err) {
    struct machine_row row DEFER(machine_row_done) = {0};
    if (live_row_find(s, who, ref, &row, err) < 0)
        return -1;
    snprintf(ret, ID_SIZE, "%s", row.id);
    return 0;
}

/* A command in the foreground stays `starting` in the store until it ends: see exec_view(). */
static int states_of(const char *name, unsigned *ret, struct err *err) {
    enum exec_state state;
    if (!name)
        return 0;
    if (exec_state_parse(name, &state, err) < 0)
        return -1;
    *ret = 1u << state | (state == EXEC_RUNNING ? 1u << EXEC_STARTING : 0);
    return 0;
}

/* Commands that run come first: the store has the process ids only of those that were committed. */
struct exec *service_exec_by_pid(struct service *s, const struct caller *who, const char *machine,
                                 uint32_t pid, struct err *err) {
    char id[ID_SIZE];
    struct exec_row row DEFER(exec_row_done) = {0};
    if (allow(who, SCOPE_READ, err) < 0 || machine_id_of(s, who, machine, id, err) < 0)
        return NULL;
    const struct live *l = map_get(&s->machines, id);
    for (struct exec *x = l ? l->execs->first : NULL; x; x = x->next)
        if (x->row.pid == pid && !exec_is_over(x)) {
            exec_ref(x);
            return x;
        }
    if (pid && store_exec_by_pid(s->store, id, pid, &row, NULL) == 0)
        return service_exec_find(s, who, id, row.id, err);
    err_set(err, ERR_NOT_FOUND, "no command of machine '%.60s' has process id %u", machine, pid);
    return NULL;
}

const char *service_exec_newest(struct service *s, const struct caller *who, const char *machine) {
    struct err err;
    struct live *l = live_find(s, who, machine, LIVE_ANY, &err);
    for (const struct exec *x = l ? l->execs->first : NULL; x; x = x->next)
        if (x->runs && !(x->row.flags & (EXEC_LAZY | EXEC_NO_STEP)))
            return x->row.argv;
    return NULL;
}

int service_exec_list(struct service *s, const struct caller *who, const char *machine,
                      const struct list_request *r, service_row_fn *row, void *arg,
                      char ret_next[CURSOR_SIZE], struct err *err) {
    char id[ID_SIZE];
    struct exec_list list DEFER(exec_list_done) = {0};
    if (allow(who, SCOPE_READ, err) < 0 || machine_id_of(s, who, machine, id, err) < 0)
        return -1;
    struct exec_filter filter = {
        .machine = id, .limit = r->limit, .without = r->all ? 0 : EXEC_NO_STEP};
    uint64_t before = 0;
    if (states_of(r->states, &filter.states, err) < 0)
        return -1;
    if (r->cursor && list_cursor(r->cursor, UINT32_MAX, &before, err) < 0)
        return -1;
    filter.before = (uint32_t)before;
    if (store_exec_list(s->store, &filter, &list, err) < 0)
        return -1;
    ret_next[0] = '\0';
    for (size_t i = 0; i < list.count; i++) {
        struct exec_view view;
        struct exec *x = map_get(&s->execs->by_id, list.rows[i].id);
        if (x)
            exec_view(x, &view);
        else
            exec_row_view(&list.rows[i], &view);
        row(arg, &view);
    }
    const struct exec_row *last = list.count ? &list.rows[list.count - 1] : NULL;
    if (last && list.count >= (r->limit ? r->limit : 100))
        snprintf(ret_next, CURSOR_SIZE, "%" PRIu32, last->number);
    return 0;
}
