/*
 * Start of the daemon: finds the machines and commands of an earlier daemon again.
 *
 * The store says what should exist, the host what exists. A machine that both know is adopted, and
 * its commands continue. A machine that only the store knows has ended. A box is removed only if
 * its row says that it has ended; a box that the store does not know is left alone (strays.h).
 *
 * Only `not_found` and `gone` mean that a machine does not exist. A machine that cannot be reached
 * is kept and tried again, while the daemon serves the others.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/asleep.h"
#include "service/exec/live.h"
#include "service/exec/logs.h"
#include "service/exec/stored.h"
#include "service/net/live.h"
#include "service/steps/barrier.h"
#include "service/steps/durable.h"
#include "service/steps/live.h"
#include "service/strays.h"
#include "service/vm/memory.h"
#include "service/vm/vms.h"

enum {
    PATIENCE_MS = 5000,      /* time that a silent guest may delay the start of the daemon */
    UNKNOWN_MAX = 1024,      /* commands per machine that are missing in this database */
    UNKNOWN_AHEAD = 1 << 20, /* most that their numbers may exceed the highest one in it */
};

static void one_less(struct service *s) {
    if (--s->adopting)
        return;
    loop_fn *ready = TAKE(s->ready);
    if (ready)
        ready(s->ready_arg);
}

/* Ends the wait of the daemon's start, or of an adopt request, for this machine. */
static void await_no_more(struct live *l) {
    if (!l->reach.awaited)
        return;
    l->reach.awaited = false;
    one_less(l->service);
    service_machine_fn *told = TAKE(l->reach.told);
    if (told) {
        struct machine_view view;
        live_view(l, &view);
        told(l->reach.told_arg, &view, NULL);
    }
}

static void not_reached(struct live *l, const char *why) {
    struct reach *r = &l->reach;
    snprintf(r->why, sizeof(r->why), "%s", why);
    r->again_ms = loop_now_ms(l->service->loop) + back_off_ms(r->tries++);
    await_no_more(l);
    barrier_let_all(l); /* callers that wait too long are refused by barrier_check() */
}

static bool is_ending(const struct live *l) {
    return l->row.state == MACHINE_ENDING || l->row.state == MACHINE_ENDED;
}

/* ---- commands of a machine ---- */

/* A query to the guest: the commands of its machine, and their output logs. */
struct hearing {
    struct live *live;
    size_t waiting; /* replies that did not arrive yet */
    bool lost;      /* a reply was lost: ask again */
};

static int settle_unheard(struct live *l, struct err *err);

static void not_adopted(struct live *l, const struct err *err) {
    log_line(LOG_ERROR, "service", "adopt a machine of an earlier daemon: %s id=%s", err->text,
             l->row.id);
    not_reached(l, err->text);
}

/*
 * The guest has reported all commands. The machine is now usable, unless its steps cannot be read.
 */
static void heard(struct live *l) {
    struct err err;
    if (steps_adopt(l, &err) < 0) {
        not_adopted(l, &err);
        return;
    }
    l->reach.heard = true;
    l->reach.tries = 0;
    l->reach.why[0] = '\0';
    await_no_more(l);
    barrier_heard(l);
    if (l->row.state == MACHINE_RUNNING)
        execs_resume(l);
}

/* ERR_BUSY is fine: if something runs in the machine, its root was not being changed. */
static void root_entered(void *arg, bool changed, const struct err *err) {
    struct live *l = arg;
    (void)changed;
    l->reach.calling = false;
    if (is_ending(l)) {
        await_no_more(l);
    } else if (err && err->code != ERR_BUSY) {
        log_line(LOG_WARN, "service", "enter the root directory of a machine: %s id=%s", err->text,
                 l->row.id);
        not_reached(l, err->text);
    } else {
        l->reach.between_roots = false;
        heard(l);
    }
    live_unref(l);
}

/*
 * For a machine taken over from another store: lets the guest enter the root of the last step. The
 * other daemon may have died during a step, after the spawner left the old root and before the
 * guest did. Only the other store has a row about that.
 */
static void enter_root(struct live *l) {
    struct err err;
    if (steps_load(l, &err) < 0) {
        not_reached(l, err.text);
        return;
    }
    live_ref(l);
    l->reach.calling = true;
    l->service->driver->root(l->machine, steps_stack(l) ? steps_stack(l) : "", steps_layer(l), 0,
                             root_entered, l);
}

static void hearing_step(struct hearing *h) {
    struct live *l = h->live;
    struct err err;
    if (--h->waiting)
        return;
    l->reach.calling = false;
    if (is_ending(l)) {
        await_no_more(l);
    } else if (h->lost) {
        not_reached(l, "the connection to its guest was lost");
    } else if (settle_unheard(l, &err) < 0) {
        not_adopted(l, &err);
    } else if (l->reach.between_roots) {
        enter_root(l);
    } else {
        heard(l);
    }
    live_unref(l);
    free(h);
}

struct log_call {
    struct hearing *hearing;
    struct exec_row row;
    struct msg_row state;
};

/* False if the guest has no log of the command. After any other error, the log may still exist. */
static bool is_lost(const struct err *err) {
    return err && err->code != ERR_NOT_FOUND;
}

static void log_came(void *arg, const struct frame *frame, const struct err *err) {
    struct log_call *c = arg;
    struct hearing *h = c->hearing;
    struct machine *m = h->live->machine;
    int fd = -1;
    if (frame && m)
        guest_take_fds(m->guest, frame, &fd, 1);
    if (err)
        log_line(LOG_WARN, "service", "get the output log of a command: %s exec=%s", err->text,
                 c->row.id);
    if (is_lost(err))
        h->lost = true;
    else if (m && !is_ending(h->live) && !exec_is_listed(h->live, c->row.number))
        exec_adopt(h->live, &c->row, &c->state, TAKE_FD(fd));
    close_fd(&fd);
    exec_row_done(&c->row);
    free(c);
    hearing_step(h);
}

static void adopt_exec(struct hearing *h, struct exec_row *row, const struct msg_row *state) {
    struct live *l = h->live;
    if (!(state->flags & MSG_EXEC_LOG) || guest_keeps_logs(l->machine->guest)) {
        exec_adopt(l, row, state, -1);
        return;
    }
    struct log_call *c = xnew(struct log_call);
    *c = (struct log_call){h, *row, *state};
    row->argv = row->cwd = NULL;
    h->waiting++;
    struct frame_head head = {.type = MSG_LOG_OPEN, .id = c->row.number};
    guest_request(l->machine->guest, head, NULL, NULL, 0, log_came, c);
}

/*
 * The guest keeps a command until its end is acknowledged, which happens after the row is written.
 * A command that the guest does not know and that was not seen running never began. One that was
 * running has ended, but its end is not in this database, which may be an older copy.
 */
static void settle_lost(struct live *l, struct exec_row *row) {
    bool began = row->state == EXEC_RUNNING;
    row->state = began ? EXEC_UNKNOWN : EXEC_FAILED;
    row->exit_code = began ? 0 : 125;
    row->ended_ms = wall_ms();
    snprintf(row->reason, sizeof(row->reason), "%s",
             began ? "the command ended, but its exit status was not recorded"
                   : "the command did not start: the daemon ended first");
    exec_row_conclude(l, row);
}

/* Tells the guest to forget the command. */
static void acknowledge(struct live *l, uint32_t id) {
    guest_tell(l->machine->guest, (struct frame_head){.type = MSG_EXIT_ACK, .id = id}, NULL, NULL);
}

/* Kills a tool, or a command without a row, and tells the guest to forget it. */
static void drop_unknown(struct live *l, uint32_t id) {
    guest_tell(l->machine->guest, (struct frame_head){.type = MSG_KILL, .id = id}, NULL, NULL);
    acknowledge(l, id);
}

/*
 * True if this may be a command that a newer copy of the database knows. Its number must be small
 * enough to leave room for later commands.
 */
static bool may_be_command(const struct hearing *h, const struct msg_row *state) {
    uint32_t last = 0;
    struct err err;
    return !(state->flags & MSG_EXEC_TOOL) && state->id < EXEC_NUMBERS_END &&
           h->live->reach.unknown < UNKNOWN_MAX &&
           store_exec_last(h->live->service->store, h->live->row.id, &last, &err) == 0 &&
           state->id <= (uint64_t)last + UNKNOWN_AHEAD;
}

/* Adds a row for a command that this database does not know, so that it can continue. */
static int write_unknown(struct hearing *h, const struct msg_row *state, struct exec_row *row,
                         struct err *err) {
    char existing[ID_SIZE];
    bool pty = state->stdio[0] == MSG_STDIO_PTY;
    int64_t age_ms = state->age_us / 1000 < STORE_NUMBER_MAX ? (int64_t)(state->age_us / 1000) : 0;
    *row = (struct exec_row){.number = state->id,
                             .flags = EXEC_BACKGROUND | (pty ? EXEC_PTY : 0) |
                                      (state->stdio[0] == MSG_STDIO_PIPE ? EXEC_STDIN : 0),
                             .state = EXEC_RUNNING,
                             .created_ms = wall_ms() - age_ms,
                             .started_ms = wall_ms() - age_ms,
                             .argv = xstrdup("[\"(unknown)\"]")};
    snprintf(row->id, sizeof(row->id), "%s", id_new('x').text);
    snprintf(row->machine, sizeof(row->machine), "%s", h->live->row.id);
    snprintf(row->owner, sizeof(row->owner), "%s", h->live->row.owner);
    h->live->reach.unknown++;
    return store_exec_add(h->live->service->store, row, existing, err);
}

/*
 * One page of settle_unheard(): commands with numbers below *last, which is set to the last number
 * of the page. Returns 1 if there may be more pages, 0 if not.
 */
static int settle_page(struct live *l, uint32_t *last, struct err *err) {
    struct exec_list list DEFER(exec_list_done) = {0};
    struct exec_filter filter = {.machine = l->row.id,
                                 .limit = STORE_PAGE_MAX,
                                 .before = *last,
                                 .states = 1u << EXEC_STARTING | 1u << EXEC_RUNNING};
    if (store_exec_list(l->service->store, &filter, &list, err) < 0)
        return err_wrap(err, "cannot list the commands of the machine");
    if (list.count)
        *last = list.rows[list.count - 1].number;
    for (size_t i = 0; i < list.count; i++)
        if (!exec_is_listed(l, list.rows[i].number))
            settle_lost(l, &list.rows[i]);
    return list.count == STORE_PAGE_MAX;
}

/* Records the end of commands that are unfinished in the store and that the guest did not list. */
static int settle_unheard(struct live *l, struct err *err) {
    uint32_t last = 0;
    int more;
    while ((more = settle_page(l, &last, err)) > 0)
        ;
    return more;
}

/*
 * True if the result and output of the command are on disk. The guest may still list the command,
 * because it missed the acknowledgement or offers other output: ignore that.
 */
static bool is_settled(const struct live *l, const struct exec_row *row) {
    bool is_over = row->state != EXEC_STARTING && row->state != EXEC_RUNNING;
    return is_over && logs_are_whole(l->service->place->home, row->machine, row->id);
}

static void adopt_row(struct hearing *h, const struct msg_row *state) {
    struct live *l = h->live;
    struct exec_row row DEFER(exec_row_done) = {0};
    struct err err;
    if (exec_is_stored(l, state->id)) { /* its file counts: the process did not go on */
        drop_unknown(l, state->id);
        return;
    }
    /* A second query also lists commands that are followed already. */
    if (exec_is_listed(l, state->id) || guest_follows(l->machine->guest, state->id))
        return;
    int r = store_exec_by_number(l->service->store, l->row.id, state->id, &row, &err);
    if (r == 0 && is_settled(l, &row))
        acknowledge(l, state->id);
    else if (r == 0)
        adopt_exec(h, &row, state);
    else if (err.code != ERR_NOT_FOUND)
        h->lost = true;
    else if (!may_be_command(h, state))
        drop_unknown(l, state->id);
    else if (write_unknown(h, state, &row, &err) == 0)
        adopt_exec(h, &row, state);
    else
        h->lost = true;
}

static void table_came(void *arg, const struct frame *frame, const struct err *failed) {
    struct hearing *h = arg;
    struct live *l = h->live;
    struct msg_rows table = {0};
    struct msg_row state;
    if (failed || msg_get_rows(frame, &table) < 0) {
        log_line(LOG_WARN, "service", "list the commands of a machine: %s id=%s",
                 failed ? failed->text : "invalid reply from its guest", l->row.id);
        h->lost = true;
    }
    while (!h->lost && !is_ending(l) && msg_row_next(&table.rows, &state) > 0)
        adopt_row(h, &state);
    hearing_step(h);
}

static void adopt_hear(struct live *l) {
    struct err err;
    if (execs_adopt_stored(l, &err) < 0) {
        not_adopted(l, &err);
        return;
    }
    struct hearing *h = xnew(struct hearing);
    *h = (struct hearing){.live = l, .waiting = 1};
    live_ref(l);
    l->reach.calling = true;
    l->reach.again_ms = 0;
    snprintf(l->reach.why, sizeof(l->reach.why), "its guest does not answer yet");
    guest_request(l->machine->guest, (struct frame_head){.type = MSG_TABLE}, NULL, NULL, 0,
                  table_came, h);
}

void adopt_back(struct live *l) {
    if (!l->reach.heard && !l->reach.calling && !is_ending(l))
        adopt_hear(l);
}

/* ---- machines ---- */

/*
 * The machine has no box: it sleeps, it becomes a stopped machine with its saved step, or it has
 * ended.
 */
static void adopt_missing(struct live *l) {
    struct err err;
    int sleeps = asleep_adopt(l, false, &err);
    if (sleeps < 0)
        not_reached(l, err.text);
    if (sleeps)
        return;
    switch (durable_adopt(l, &err)) {
    case DURABLE_NONE:
        live_end(l, "it ended while no daemon ran", NULL, NULL);
        break;
    case DURABLE_STOPPED:
        stored_drop(l->service->place->home, l->row.id, NULL, NULL);
        break;
    case DURABLE_LATER:
        not_reached(l, err.text);
        break;
    }
}

static void adopt_repaired(void *arg, const struct err *err) {
    const struct live *l = arg;
    if (err)
        log_line(LOG_WARN, "service", "let a vm go on: %s id=%s", err->text, l->row.id);
    live_unref(arg);
}

/* A pause by the earlier daemon may have left a vm that stands still. */
static void adopt_repair(struct live *l) {
    if (!live_is_vm(l))
        return;
    memory_drop_pauses(l);
    if (l->row.state != MACHINE_RUNNING)
        return;
    live_ref(l);
    l->service->driver->go_on(l->machine, MEMORY_REPAIR, adopt_repaired, l);
}

static void adopt_found(struct live *l, struct machine *m) {
    struct err err;
    int sleeps = asleep_adopt(l, true, &err);
    if (sleeps == 0) {
        live_attach(l, m);
        adopt_repair(l);
        net_attach_adopted(l);
        adopt_hear(l);
        return;
    }
    machine_free(m);
    if (sleeps < 0)
        not_reached(l, err.text);
    await_no_more(l);
}

static void machine_came(void *arg, struct machine *m, const char *warnings,
                         const struct err *err) {
    struct live *l = arg;
    (void)warnings;
    l->reach.calling = false;
    if (is_ending(l)) {
        if (m)
            machine_free(m);
        await_no_more(l);
    } else if (err && (err->code == ERR_NOT_FOUND || err->code == ERR_GONE)) {
        adopt_missing(l);
        await_no_more(l);
    } else if (err) {
        log_line(LOG_WARN, "service", "connect to a machine: %s; retrying id=%s", err->text,
                 l->row.id);
        not_reached(l, err->text);
    } else {
        adopt_found(l, m);
    }
    live_unref(l);
}

static void reach(struct live *l) {
    struct machine_vm vm;
    live_ref(l);
    l->reach.calling = true;
    l->reach.again_ms = 0;
    l->service->driver->adopt(l->service->host, l->row.id, live_vm(l, NULL, &vm), machine_came, l);
}

void adopt_look(struct live *l, uint64_t now_ms) {
    struct reach *r = &l->reach;
    if (r->awaited && now_ms - r->since_ms > PATIENCE_MS)
        await_no_more(l);
    if (r->heard || r->calling || is_ending(l) || !r->again_ms || now_ms < r->again_ms)
        return;
    if (!l->machine)
        reach(l);
    else if (!guest_why_gone(l->machine->guest)) /* otherwise adopt_back() asks the guest */
        adopt_hear(l);
}

static void reach_awaited(struct live *l) {
    l->reach.awaited = true;
    l->reach.since_ms = loop_now_ms(l->service->loop);
    snprintf(l->reach.why, sizeof(l->reach.why), "its guest does not answer yet");
    l->service->adopting++;
    reach(l);
}

void adopt_taken(struct live *l, service_machine_fn *done, void *arg) {
    l->reach = (struct reach){.between_roots = true, .told = done, .told_arg = arg};
    reach_awaited(l);
}

/* This store has a row for the machine, but its box names another store: use neither. */
static void adopt_others(struct live *l, const struct plan_found *box) {
    snprintf(l->reach.why, sizeof(l->reach.why),
             "it belongs to store '%s'; take it over with: carrel store adopt %s", box->store,
             box->id);
    strays_add(l->service, STRAY_OTHERS, box, NULL);
}

/* is_known: the boxes on the host are known; box: the box of this machine, or NULL. */
static void adopt_one(struct service *s, struct machine_row *row, bool is_known,
                      const struct plan_found *box) {
    bool wanted = row->state != MACHINE_CREATING && row->state != MACHINE_ENDING;
    bool creating = row->state == MACHINE_CREATING, exists = !is_known || box;
    struct live *l = live_new(s, row);
    struct err err;
    if (box && box->left_ms)
        live_set_lifetime(l, box->left_ms);
    net_restore(l);
    /* The creator never got an answer: a retry with the same key must create a new machine. */
    if (creating && store_machine_unkey(s->store, l->row.id, &err) < 0)
        log_line(LOG_ERROR, "service", "release an idempotency key: %s id=%s", err.text, l->row.id);
    if (wanted && box && box->store[0] && strcmp(box->store, store_id(s->store)) != 0) {
        adopt_others(l, box);
        return;
    }
    if (!wanted)
        live_end(l, creating ? "it was being made when the daemon ended" : "destroyed", NULL, NULL);
    else if (!exists)
        adopt_missing(l);
    else
        reach_awaited(l);
}

/* there: boxes on the host. NULL: the host did not list them, so each machine is tried. */
static void adopt_rows(struct service *s, const struct map *there) {
    struct id_list ids DEFER(id_list_done) = s->wanted;
    s->wanted = (struct id_list){0};
    for (size_t i = 0; i < ids.count; i++) {
        struct machine_row row DEFER(machine_row_done) = {0};
        struct plan_found none = {.id = ""};
        const struct plan_found *box = there ? map_get(there, ids.ids[i]) : NULL;
        struct err err;
        memcpy(none.id, ids.ids[i], sizeof(none.id));
        if (store_machine_get(s->store, ids.ids[i], &row, &err) < 0)
            strays_add(s, STRAY_DAMAGED, box ? box : &none, err.text);
        else
            adopt_one(s, &row, there, box);
    }
}

static void removed(void *arg, const struct err *err) {
    (void)arg;
    if (err && err->code != ERR_NOT_FOUND)
        log_line(LOG_WARN, "service", "remove a machine that has ended: %s", err->text);
}

/* Handles a box without a live machine: removes the box only if its row says that it has ended. */
static void judge(struct service *s, const struct plan_found *box) {
    struct machine_row row DEFER(machine_row_done) = {0};
    struct err err;
    if (map_get(&s->machines, box->id))
        return;
    if (store_machine_get(s->store, box->id, &row, &err) < 0)
        strays_add(s, err.code == ERR_NOT_FOUND ? STRAY_NO_ROW : STRAY_DAMAGED, box, err.text);
    else if (row.state == MACHINE_ENDED)
        s->driver->destroy(s->host, box->id, removed, NULL);
}

static bool is_live(void *arg, const char *machine) {
    const struct service *s = arg;
    return map_get(&s->machines, machine);
}

static void list_came(void *arg, const struct plan_found *found, size_t count,
                      const struct err *failed) {
    struct service *s = arg;
    struct map there DEFER(map_done) = {0};
    bool first = s->list_tries == 0;
    s->listing = false;
    s->listed = !failed;
    for (size_t i = 0; i < count; i++)
        map_put(&there, found[i].id, (void *)&found[i]);
    if (failed) {
        log_line(LOG_ERROR, "service", "list the machines on this host: %s", failed->text);
        s->list_again_ms = loop_now_ms(s->loop) + back_off_ms(s->list_tries++);
    }
    if (first)
        adopt_rows(s, failed ? NULL : &there);
    for (size_t i = 0; i < count; i++)
        judge(s, &found[i]);
    durable_want_sweep(s, s->listed);
    if (first)
        stored_sweep(s->place->home, is_live, s);
    if (first)
        memory_sweep(s);
    if (first)
        one_less(s);
}

static void adopt_list(struct service *s) {
    s->listing = true;
    s->driver->list(s->host, list_came, s);
}

int adopt_all(struct service *s, struct err *err) {
    if (store_machine_ids(s->store, &s->wanted, err) < 0)
        return err_wrap(err, "cannot read the list of machines from the store");
    s->adopting = 1;
    adopt_list(s);
    return 0;
}

void adopt_again(struct service *s, uint64_t now_ms) {
    if (!s->listed && !s->listing && now_ms >= s->list_again_ms)
        adopt_list(s);
}
