/*
 * What the daemon does when it starts: it finds every machine and command again.
 *
 * The store says what is wanted, the host what exists. Wanted and there: adopted, and its commands
 * go on. Wanted and not there: it ended while nobody looked. There and not wanted: removed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "base/log.h"
#include "service/state.h"

struct adoption {
    struct live *live;
    size_t waiting; /* logs that did not come yet, and one for ourselves */
    bool heard;     /* the guest has told all it knows */
};

static void adopted(struct service *s) {
    if (--s->adopting)
        return;
    loop_fn *ready = TAKE(s->ready);
    if (ready)
        ready(s->ready_arg);
}

static void settle_unheard(struct live *l, struct err *err);

static void adoption_step(struct adoption *a) {
    struct err err;
    if (--a->waiting)
        return;
    struct service *s = a->live->service;
    if (a->heard && a->live->machine)
        settle_unheard(a->live, &err);
    a->live->changing = false;
    live_unref(a->live);
    free(a);
    adopted(s);
}

/* ---- the commands of a machine ---- */

struct log_call {
    struct adoption *adoption;
    struct exec_row row;
    struct msg_row state;
};

static void log_came(void *arg, const struct frame *frame, const struct err *err) {
    struct log_call *c = arg;
    struct machine *m = c->adoption->live->machine;
    int fd = -1;
    if (frame && m)
        guest_take_fds(m->guest, frame, &fd, 1);
    if (err)
        log_line(LOG_WARN, "service", "log of a command: %s exec=%s", err->text, c->row.id);
    if (m)
        exec_adopt(c->adoption->live, &c->row, &c->state, fd);
    exec_row_done(&c->row);
    adoption_step(c->adoption);
    free(c);
}

static void adopt_exec(struct adoption *a, struct exec_row *row, const struct msg_row *state) {
    struct live *l = a->live;
    if (!(state->flags & MSG_EXEC_LOG)) {
        exec_adopt(l, row, state, -1);
        return;
    }
    struct log_call *c = calloc(1, sizeof(*c));
    if (!c)
        abort();
    *c = (struct log_call){a, *row, *state};
    row->argv = row->cwd = NULL;
    a->waiting++;
    struct frame_head head = {.type = MSG_LOG_OPEN, .id = c->row.number};
    guest_request(l->machine->guest, head, NULL, NULL, 0, log_came, c);
}

/* The guest keeps every command until its end was acknowledged, and that is done after it is
 * written down: what it does not know and we have no outcome of never began. */
static void never_began(struct live *l, struct exec_row *row) {
    struct err err;
    row->state = EXEC_FAILED;
    row->exit_code = 125;
    row->ended_ms = now_ms();
    snprintf(row->reason, sizeof(row->reason), "it never began: the daemon ended first");
    if (store_exec_finish(l->service->store, row, &err) < 0)
        log_line(LOG_ERROR, "service", "%s exec=%s", err.text, row->id);
}

/* A tool, or something nobody wrote down: it ends, and the guest forgets it. */
static void drop_unknown(struct live *l, uint32_t id) {
    struct guest *g = l->machine->guest;
    guest_tell(g, (struct frame_head){.type = MSG_KILL, .id = id}, NULL, NULL);
    guest_tell(g, (struct frame_head){.type = MSG_EXIT_ACK, .id = id}, NULL, NULL);
}

/* Commands whose outcome is not known yet, less those that the guest has told of. */
static void settle_unheard(struct live *l, struct err *err) {
    struct exec_list list DEFER(exec_list_done) = {0};
    struct exec_filter filter = {.machine = l->row.id,
                                 .limit = STORE_PAGE_MAX,
                                 .states = 1u << EXEC_STARTING | 1u << EXEC_RUNNING};
    if (store_exec_list(l->service->store, &filter, &list, err) < 0) {
        log_line(LOG_ERROR, "service", "%s", err->text);
        return;
    }
    for (size_t i = 0; i < list.count; i++)
        if (!exec_is_listed(l, list.rows[i].number))
            never_began(l, &list.rows[i]);
}

static void table_came(void *arg, const struct frame *frame, const struct err *failed) {
    struct adoption *a = arg;
    struct live *l = a->live;
    struct msg_rows table = {0};
    struct msg_row state;
    struct err err;
    if (failed || msg_decode(frame, &table, sizeof(table)) < 0) {
        log_line(LOG_WARN, "service", "the commands of a machine are not known id=%s", l->row.id);
        adoption_step(a);
        return;
    }
    while (msg_row_next(&table.rows, &state) > 0) {
        struct exec_row row DEFER(exec_row_done) = {0};
        if (store_exec_by_number(l->service->store, l->row.id, state.id, &row, &err) < 0)
            drop_unknown(l, state.id);
        else
            adopt_exec(a, &row, &state);
    }
    a->heard = true;
    adoption_step(a);
}

/* ---- the machines ---- */

static void machine_came(void *arg, struct machine *m, const char *warnings,
                         const struct err *err) {
    struct adoption *a = arg;
    struct live *l = a->live;
    (void)warnings;
    if (err) {
        log_line(LOG_WARN, "service", "adopt machine: %s id=%s", err->text, l->row.id);
        live_end(l, "it could not be reached again", NULL, NULL);
        adoption_step(a);
        return;
    }
    live_attach(l, m);
    guest_request(m->guest, (struct frame_head){.type = MSG_TABLE}, NULL, NULL, 0, table_came, a);
}

static void adopt_one(struct service *s, struct machine_row *row, bool exists) {
    bool wanted = row->state != MACHINE_CREATING && row->state != MACHINE_ENDING;
    bool creating = row->state == MACHINE_CREATING;
    struct live *l = live_new(s, row);
    if (!wanted || !exists) {
        live_end(l,
                 creating  ? "it was being made when the daemon ended"
                 : !wanted ? "destroyed"
                           : "it ended while no daemon ran",
                 NULL, NULL);
        return;
    }
    struct adoption *a = calloc(1, sizeof(*a));
    if (!a)
        abort();
    *a = (struct adoption){.live = l, .waiting = 1};
    live_ref(l);
    l->changing = true;
    s->adopting++;
    s->driver->adopt(s->host, l->row.id, machine_came, a);
}

static void adopt_rows(struct service *s, const struct map *there, struct err *err) {
    struct machine_filter filter = {.limit = STORE_PAGE_MAX};
    char last[ID_SIZE] = "";
    for (;;) {
        struct machine_list list DEFER(machine_list_done) = {0};
        if (store_machine_list(s->store, &filter, &list, err) < 0) {
            log_line(LOG_ERROR, "service", "%s", err->text);
            return;
        }
        for (size_t i = 0; i < list.count; i++) {
            snprintf(last, sizeof(last), "%s", list.rows[i].id);
            filter.before_ms = list.rows[i].created_ms;
            adopt_one(s, &list.rows[i], map_get(there, list.rows[i].id));
        }
        filter.before_id = last;
        if (list.count < STORE_PAGE_MAX)
            return;
    }
}

static void removed(void *arg, const struct err *err) {
    (void)arg;
    if (err && err->code != ERR_NOT_FOUND)
        log_line(LOG_WARN, "service", "remove an unknown machine: %s", err->text);
}

static void list_came(void *arg, const char *const *ids, size_t count, const struct err *failed) {
    struct service *s = arg;
    struct map there DEFER(map_done) = {0};
    struct err err;
    if (failed)
        log_line(LOG_ERROR, "service", "list machines: %s", failed->text);
    for (size_t i = 0; i < count; i++)
        map_put(&there, ids[i], (void *)ids[i]);
    if (!failed)
        adopt_rows(s, &there, &err);
    for (size_t i = 0; i < count; i++)
        if (!map_get(&s->machines, ids[i]))
            s->driver->destroy(s->host, ids[i], removed, NULL);
    adopted(s);
}

void adopt_all(struct service *s) {
    s->adopting = 1;
    s->driver->list(s->host, list_came, s);
}
