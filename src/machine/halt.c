/*
 * Kills every process of a machine except its guest. The guest kills the process tree of each
 * command, and then the processes that belong to no command: without cgroups, those that left the
 * session of their command. This is repeated until none is left, because a tree may grow meanwhile.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "machine/machine.h"

enum { LOOK_MS = 10, PATIENCE_MS = 2000 };

struct halt {
    struct machine *machine;
    struct loop *loop;
    struct loop_timer *timer;
    uint64_t until_ms;
    machine_done_fn *done;
    void *arg;
};

static void halt_finish(struct halt *h, const struct err *err) {
    loop_timer_free(h->timer);
    h->machine->calls--;
    h->done(h->arg, err);
    free(h);
}

static void ignored(void *arg, const struct frame *frame, const struct err *err) {
    (void)arg;
    (void)frame;
    (void)err; /* the next round checks the result */
}

static void ask_kill(struct halt *h, uint32_t id) {
    guest_request(h->machine->guest, (struct frame_head){.type = MSG_KILL, .id = id}, NULL, NULL, 0,
                  ignored, NULL);
}

static void table_came(void *arg, const struct frame *frame, const struct err *err) {
    struct halt *h = arg;
    struct msg_rows table;
    struct msg_row row;
    struct err bad;
    if (!err && msg_get_rows(frame, &table) < 0) {
        err_set(&bad, ERR_INTERNAL, "the guest of the machine sent an invalid list of commands");
        err = &bad;
    }
    if (err) {
        halt_finish(h, err);
        return;
    }
    while (msg_row_next(&table.rows, &row) > 0)
        ask_kill(h, row.id);
    ask_kill(h, MSG_KILL_ALL);
    loop_timer_start(h->timer, LOOK_MS, 0);
}

static void busy_came(void *arg, const struct frame *frame, const struct err *err) {
    struct halt *h = arg;
    struct msg_busy_state state;
    struct err bad;
    if (!err && msg_get_busy(frame, &state) < 0) {
        err_set(&bad, ERR_INTERNAL,
                "the guest of the machine sent an invalid reply about its processes");
        err = &bad;
    } else if (!err && state.busy && loop_now_ms(h->loop) >= h->until_ms) {
        err_set(&bad, ERR_BUSY, "a process in machine '%s' does not end", h->machine->id);
        err = &bad;
    }
    if (err || !state.busy)
        halt_finish(h, err);
    else
        guest_request(h->machine->guest, (struct frame_head){.type = MSG_TABLE}, NULL, NULL, 0,
                      table_came, h);
}

static void halt_look(void *arg) {
    struct halt *h = arg;
    guest_request(h->machine->guest, (struct frame_head){.type = MSG_BUSY}, NULL, NULL, 0,
                  busy_came, h);
}

void machine_halt(struct machine *m, struct loop *loop, machine_done_fn *done, void *arg) {
    struct halt *h = xnew(struct halt);
    *h = (struct halt){.machine = m, .loop = loop, .done = done, .arg = arg};
    h->timer = loop_timer_new(loop, halt_look, h);
    m->calls++; /* counts as a call also between two rounds, when no request is pending */
    h->until_ms = loop_now_ms(loop) + PATIENCE_MS;
    halt_look(h);
}
