#include "service/steps/steps.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "service/steps/barrier.h"
#include "service/steps/inner.h"
#include "service/steps/live.h"
#include "service/vm/memory.h"

static size_t count_layers(const char *stack) {
    size_t n = stack && *stack ? 1 : 0;
    for (; stack && (stack = strchr(stack, ' ')); stack++)
        n++;
    return n;
}

static const char *how_taken(const struct step_row *row) {
    if (!row->has_point)
        return NULL;
    static const char *const ways[] = {"btrfs", "reflink", "copy"};
    for (size_t i = 0; row->layer >= LAYER_COPIED && i < sizeof(ways) / sizeof(*ways); i++)
        if (strncmp(row->reason, ways[i], strlen(ways[i])) == 0)
            return ways[i];
    return row->layer >= LAYER_COPIED ? row->reason : row->layer ? "switch" : "same";
}

void step_view(const struct step_row *row, struct step_view *ret) {
    *ret = (struct step_view){
        .id = row->id,
        .machine = row->machine,
        .kind = step_kind_name(row->kind),
        .exec = row->exec[0] ? row->exec : NULL,
        .what = row->what && *row->what ? row->what : NULL,
        .name = row->name[0] ? row->name : NULL,
        .number = row->number,
        .created_ms = (uint64_t)row->created_ms,
        .files = row->files,
        .bytes = row->bytes,
        .layers = count_layers(row->stack),
        .status = row->status,
        .restorable = row->has_point,
        .memory = step_has_memory(row),
        .durable = row->durable,
        .counted = row->counted,
        .reason = row->reason[0] && !row->has_point ? row->reason : NULL,
        .how = how_taken(row),
    };
}

/* Only root can give machines btrfs disks, where a step beside running processes is restorable. */
#define STEP_BTRFS_HINT \
    (geteuid() == 0 ? "; btrfs disks keep all steps: carrel store init --btrfs SIZE" : "")

int step_point_error(const struct live *l, const struct step_row *row, struct err *err) {
    struct step_row before DEFER(step_row_done) = {.what = NULL};
    struct err none;
    err_set(err, ERR_UNSUPPORTED, "step %" PRIu32 " has no restore point: %s", row->number,
            row->reason);
    if (store_step_point_before(l->service->store, row->machine, row->number, &before, &none) < 0)
        return err_remedy(err, "no step before it has one%s", STEP_BTRFS_HINT);
    return err_remedy(
        err, "to return to step %" PRIu32 ": carrel rewind --stop-processes %s %" PRIu32 "%s",
        before.number, row->machine, row->number, STEP_BTRFS_HINT);
}

/* ---- a step on request ---- */

struct snap {
    struct service *service;
    struct caller who;
    char machine[ID_SIZE];
    uint64_t intent;
    service_step_fn *done;
    void *arg;
};

static void snapped(void *arg, const struct step_row *row, const struct err *err) {
    struct snap *c = arg;
    struct journal_record what = {.verb = "machine.snap", .machine = c->machine};
    struct step_view view;
    note_result(c->service, &c->who, &what, c->intent, err);
    if (row)
        step_view(row, &view);
    c->done(c->arg, row ? &view : NULL, err);
    free(c);
}

/* No name has the form of an id of a step or of a command: a review finds its base by such an id.
 */
static bool step_name_ok(const char *name) {
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    bool number = strspn(name, "0123456789") == strlen(name);
    return n > 0 && !name[n] && !number && strcmp(name, "last") != 0 &&
           strcmp(name, "start") != 0 && strcmp(name, "now") != 0 && strncmp(name, "s-", 2) != 0 &&
           !id_valid(name, strlen(name), 'x');
}

static int step_name_check(const char *name, struct err *err) {
    if (step_name_ok(name))
        return 0;
    err_set(err, ERR_INVALID, "'%s' is not a valid step name", name);
    return err_remedy(err, "use letters, digits, '.', '_' and '-', and not digits alone");
}

void service_snap(struct service *s, const struct caller *who, const char *machine,
                  const struct snap_request *r, service_step_fn *done, void *arg) {
    const char *name = r->name;
    struct err err;
    uint64_t intent;
    struct live *l =
        allow(who, SCOPE_RUN, &err) < 0 ? NULL : live_find(s, who, machine, LIVE_ANY, &err);
    if (l && ((name && step_name_check(name, &err) < 0) || barrier_check(l, &err) < 0 ||
              (r->memory && memory_check(l, &err) < 0)))
        l = NULL;
    struct journal_record what = {.verb = "machine.snap", .machine = l ? l->row.id : NULL};
    if (!l || note_intent(s, who, &what, &intent, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    struct snap *c = xnew(struct snap);
    *c = (struct snap){.service = s, .who = *who, .intent = intent, .done = done, .arg = arg};
    memcpy(c->machine, l->row.id, sizeof(c->machine));
    struct step_cause cause = {
        .kind = STEP_SNAP, .what = name, .status = -1, .name = name, .memory = r->memory};
    steps_take(l, &cause, snapped, c);
}

/* ---- the name of a step ---- */

struct naming {
    struct live *live;
    struct step_row row;
    const char *name; /* empty: none */
};

static int write_name(void *arg, struct err *err) {
    const struct naming *n = arg;
    struct live *l = n->live;
    struct buf text DEFER(buf_done) = BUF(1024);
    struct jot j = JOT(&text);
    if (store_step_name(l->service->store, &n->row, n->name, err) < 0)
        return -1;
    jot_object(&j, NULL);
    jot_string(&j, "step", n->row.id);
    jot_u64(&j, "number", n->row.number);
    if (*n->name)
        jot_string(&j, "name", n->name);
    jot_end(&j, '}');
    return event_put(l->service, l->row.owner, l->row.id, "step.named", text.data, err);
}

static int step_to_name(struct service *s, const struct caller *who, const char *machine,
                        const char *step, struct naming *n, struct err *err) {
    if (allow(who, SCOPE_RUN, err) < 0 || (*n->name && step_name_check(n->name, err) < 0))
        return -1;
    n->live = live_find(s, who, machine, LIVE_ANY, err);
    return n->live ? store_step_find(s->store, n->live->row.id, step, &n->row, err) : -1;
}

void service_step_name(struct service *s, const struct caller *who, const char *machine,
                       const char *step, const char *name, service_step_fn *done, void *arg) {
    struct naming n = {.name = name};
    struct step_view view;
    struct err err;
    uint64_t intent;
    char reason[STORE_NAME_SIZE + 32];
    struct journal_record what = {.verb = "step.name", .reason = reason};
    int r = step_to_name(s, who, machine, step, &n, &err);
    if (r == 0) {
        what.machine = n.live->row.id;
        snprintf(reason, sizeof(reason), "step %" PRIu32 ": %s", n.row.number, name);
        r = note_intent(s, who, &what, &intent, &err);
    }
    if (r == 0) {
        const struct commit commit = {.write = write_name, .arg = &n};
        r = commit_once(s->commits, &n.live->lane, &commit, &err);
        note_result(s, who, &what, intent, r < 0 ? &err : NULL);
    }
    snprintf(n.row.name, sizeof(n.row.name), "%s", name);
    step_view(&n.row, &view);
    done(arg, r < 0 ? NULL : &view, r < 0 ? &err : NULL);
    step_row_done(&n.row);
}

/* ---- lists of steps ---- */

void service_settled(struct service *s, const struct caller *who, const char *machine, loop_fn *go,
                     void *arg) {
    struct err err;
    struct live *l = live_find(s, who, machine, LIVE_ANY, &err);
    if (!l || !barrier_wait_settled(l, go, arg))
        go(arg);
}

int service_step_list(struct service *s, const struct caller *who, const char *machine,
                      const struct list_request *r, service_row_fn *row, void *arg,
                      char ret_next[CURSOR_SIZE], struct err *err) {
    struct machine_row of DEFER(machine_row_done) = {0};
    struct step_list list DEFER(step_list_done) = {0};
    uint64_t before = 0;
    if (allow(who, SCOPE_READ, err) < 0 || live_row_find(s, who, machine, &of, err) < 0)
        return -1;
    if (r->cursor && list_cursor(r->cursor, UINT32_MAX, &before, err) < 0)
        return -1;
    if (store_step_list(s->store, of.id, (uint32_t)before, false, r->limit, &list, err) < 0)
        return -1;
    ret_next[0] = '\0';
    for (size_t i = 0; i < list.count; i++) {
        struct step_view view;
        step_view(&list.rows[i], &view);
        row(arg, &view);
    }
    if (list.count && list.count >= (r->limit ? r->limit : 100))
        snprintf(ret_next, CURSOR_SIZE, "%" PRIu32, list.rows[list.count - 1].number);
    return 0;
}

int service_step_show(struct service *s, const struct caller *who, const char *machine,
                      const char *step, service_step_fn *done, void *arg, struct err *err) {
    struct machine_row of DEFER(machine_row_done) = {0};
    struct step_row row DEFER(step_row_done) = {.what = NULL};
    struct step_view view;
    if (allow(who, SCOPE_READ, err) < 0 || live_row_find(s, who, machine, &of, err) < 0 ||
        store_step_find(s->store, of.id, step, &row, err) < 0)
        return -1;
    step_view(&row, &view);
    done(arg, &view, NULL);
    return 0;
}
