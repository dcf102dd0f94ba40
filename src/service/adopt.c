/*
 * What the daemon does when it starts: it finds every machine and command again.
 *
 * The store says what is wanted, the host what exists. Wanted and there: adopted, and its commands
 * go on. Wanted and not there: it ended while nobody looked. There and not wanted: removed. Only
 * `not_found` and `gone` mean that a machine is not there: one that cannot be spoken to now is kept
 * and tried again, and the daemon serves the others meanwhile.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "base/log.h"
#include "service/durable.h"
#include "service/gate.h"

enum { PATIENCE_MS = 5000 }; /* with a guest that says nothing, before the daemon is ready */

static void one_less(struct service *s) {
    if (--s->adopting)
        return;
    loop_fn *ready = TAKE(s->ready);
    if (ready)
        ready(s->ready_arg);
}

/* Nobody waits for this machine any more. */
static void await_no_more(struct live *l) {
    if (!l->reach.awaited)
        return;
    l->reach.awaited = false;
    one_less(l->service);
}

static void not_reached(struct live *l, const char *why) {
    struct reach *r = &l->reach;
    snprintf(r->why, sizeof(r->why), "%s", why);
    r->again_ms = loop_now_ms(l->service->loop) + back_off_ms(r->tries++);
    await_no_more(l);
}

static bool is_ending(const struct live *l) {
    return l->row.state == MACHINE_ENDING || l->row.state == MACHINE_ENDED;
}

/* ---- the commands of a machine ---- */

/* One question for a machine's commands, and for the logs of those it has. */
struct hearing {
    struct live *live;
    size_t waiting; /* answers that did not come yet */
    bool lost;      /* some will not: ask again */
};

static void settle_unheard(struct live *l);

static void hearing_step(struct hearing *h) {
    struct live *l = h->live;
    if (--h->waiting)
        return;
    l->reach.calling = false;
    if (is_ending(l)) {
        await_no_more(l);
    } else if (h->lost) {
        not_reached(l, "the connection to its guest was lost");
    } else {
        settle_unheard(l);
        l->reach.heard = true;
        l->reach.tries = 0;
        l->reach.why[0] = '\0';
        steps_adopt(l);
        await_no_more(l);
    }
    live_unref(l);
    free(h);
}

struct log_call {
    struct hearing *hearing;
    struct exec_row row;
    struct msg_row state;
};

/* A log that the guest does not have is one thing; an answer that did not come another. */
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
        log_line(LOG_WARN, "service", "log of a command: %s exec=%s", err->text, c->row.id);
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
    if (!(state->flags & MSG_EXEC_LOG)) {
        exec_adopt(l, row, state, -1);
        return;
    }
    struct log_call *c = calloc(1, sizeof(*c));
    if (!c)
        abort();
    *c = (struct log_call){h, *row, *state};
    row->argv = row->cwd = NULL;
    h->waiting++;
    struct frame_head head = {.type = MSG_LOG_OPEN, .id = c->row.number};
    guest_request(l->machine->guest, head, NULL, NULL, 0, log_came, c);
}

/* The guest keeps every command until its end was acknowledged, and that is done after it is
 * written down: what it does not know and we have no outcome of never began. */
static void never_began(struct live *l, struct exec_row *row) {
    row->state = EXEC_FAILED;
    row->exit_code = 125;
    row->ended_ms = now_ms();
    snprintf(row->reason, sizeof(row->reason), "it never began: the daemon ended first");
    exec_row_conclude(l, row);
}

/* A tool, or something nobody wrote down: it ends, and the guest forgets it. */
static void drop_unknown(struct live *l, uint32_t id) {
    struct guest *g = l->machine->guest;
    guest_tell(g, (struct frame_head){.type = MSG_KILL, .id = id}, NULL, NULL);
    guest_tell(g, (struct frame_head){.type = MSG_EXIT_ACK, .id = id}, NULL, NULL);
}

/* Commands whose outcome is not known yet, less those that the guest has told of. */
static void settle_unheard(struct live *l) {
    struct exec_list list DEFER(exec_list_done) = {0};
    struct exec_filter filter = {.machine = l->row.id,
                                 .limit = STORE_PAGE_MAX,
                                 .states = 1u << EXEC_STARTING | 1u << EXEC_RUNNING};
    struct err err;
    if (store_exec_list(l->service->store, &filter, &list, &err) < 0) {
        log_line(LOG_ERROR, "service", "%s", err.text);
        return;
    }
    for (size_t i = 0; i < list.count; i++)
        if (!exec_is_listed(l, list.rows[i].number))
            never_began(l, &list.rows[i]);
}

static void adopt_row(struct hearing *h, const struct msg_row *state) {
    struct live *l = h->live;
    struct exec_row row DEFER(exec_row_done) = {0};
    struct err err;
    /* Asked a second time, the guest tells of what we follow already, too. */
    if (exec_is_listed(l, state->id) || guest_follows(l->machine->guest, state->id))
        return;
    if (store_exec_by_number(l->service->store, l->row.id, state->id, &row, &err) == 0)
        adopt_exec(h, &row, state);
    else if (err.code == ERR_NOT_FOUND)
        drop_unknown(l, state->id);
    else
        h->lost = true;
}

static void table_came(void *arg, const struct frame *frame, const struct err *failed) {
    struct hearing *h = arg;
    struct live *l = h->live;
    struct msg_rows table = {0};
    struct msg_row state;
    if (failed || msg_get_rows(frame, &table) < 0) {
        log_line(LOG_WARN, "service", "the commands of a machine are not known: %s id=%s",
                 failed ? failed->text : "its guest answered nonsense", l->row.id);
        h->lost = true;
    }
    while (!h->lost && !is_ending(l) && msg_row_next(&table.rows, &state) > 0)
        adopt_row(h, &state);
    hearing_step(h);
}

/* Asks the guest for its commands. */
static void hear(struct live *l) {
    struct hearing *h = calloc(1, sizeof(*h));
    if (!h)
        abort();
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
        hear(l);
}

/* ---- the machines ---- */

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
        if (!durable_adopt(l))
            live_end(l, "it ended while no daemon ran", NULL, NULL);
        await_no_more(l);
    } else if (err) {
        log_line(LOG_WARN, "service", "machine not reached yet: %s id=%s", err->text, l->row.id);
        not_reached(l, err->text);
    } else {
        live_attach(l, m);
        net_attach_adopted(l);
        hear(l);
    }
    live_unref(l);
}

static void reach(struct live *l) {
    live_ref(l);
    l->reach.calling = true;
    l->reach.again_ms = 0;
    l->service->driver->adopt(l->service->host, l->row.id, machine_came, l);
}

void adopt_look(struct live *l, uint64_t now_ms) {
    struct reach *r = &l->reach;
    if (r->awaited && now_ms - r->since_ms > PATIENCE_MS)
        await_no_more(l);
    if (r->heard || r->calling || is_ending(l) || !r->again_ms || now_ms < r->again_ms)
        return;
    if (!l->machine)
        reach(l);
    else if (!guest_why_gone(l->machine->guest)) /* else adopt_back() comes */
        hear(l);
}

static void adopt_one(struct service *s, struct machine_row *row, bool exists) {
    bool wanted = row->state != MACHINE_CREATING && row->state != MACHINE_ENDING;
    bool creating = row->state == MACHINE_CREATING;
    struct live *l = live_new(s, row);
    struct err err;
    net_restore(l);
    /* Nobody was told of it: who asks again wants one that is there. */
    if (creating && store_machine_unkey(s->store, l->row.id, &err) < 0)
        log_line(LOG_ERROR, "service", "free a key: %s id=%s", err.text, l->row.id);
    if (wanted && !exists && durable_adopt(l))
        return;
    if (!wanted || !exists) {
        live_end(l,
                 creating  ? "it was being made when the daemon ended"
                 : !wanted ? "destroyed"
                           : "it ended while no daemon ran",
                 NULL, NULL);
        return;
    }
    l->reach = (struct reach){
        .awaited = true, .since_ms = loop_now_ms(s->loop), .why = "its guest does not answer yet"};
    s->adopting++;
    reach(l);
}

/* there: what the host has; NULL: that is not known, and each will show. */
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
            if (!map_get(&s->machines, last))
                adopt_one(s, &list.rows[i], !there || map_get(there, last));
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
    bool first = s->list_tries == 0;
    s->listing = false;
    s->listed = !failed;
    for (size_t i = 0; i < count; i++)
        map_put(&there, ids[i], (void *)ids[i]);
    if (failed) {
        log_line(LOG_ERROR, "service", "list machines: %s", failed->text);
        s->list_again_ms = loop_now_ms(s->loop) + back_off_ms(s->list_tries++);
    }
    if (first)
        adopt_rows(s, failed ? NULL : &there, &err);
    for (size_t i = 0; i < count; i++)
        if (!map_get(&s->machines, ids[i]))
            s->driver->destroy(s->host, ids[i], removed, NULL);
    s->saved_unswept = s->listed;
    if (first)
        one_less(s);
}

static void list(struct service *s) {
    s->listing = true;
    s->driver->list(s->host, list_came, s);
}

void adopt_all(struct service *s) {
    s->adopting = 1;
    list(s);
}

void adopt_again(struct service *s, uint64_t now_ms) {
    if (!s->listed && !s->listing && now_ms >= s->list_again_ms)
        list(s);
}
