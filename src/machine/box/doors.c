/* Ways into a box: sockets of the gate, connections to its ports, granted directories. */
#include "machine/box/inner.h"

#include <string.h>

static void on_doors(void *arg, const struct plan_message *m, struct fd_message *fds,
                     const struct err *failed) {
    (void)m;
    struct call *c = arg;
    machine_doors_fn *done = c->box ? c->doors : NULL;
    void *done_arg = c->arg;
    struct err err;
    call_free(c);
    if (!done)
        return;
    if (!failed && fds->nfds != PLAN_GATE_FDS) {
        box_no_fds(&err, "cannot take the gate's sockets of a machine");
        failed = &err;
    }
    if (failed) {
        done(done_arg, NULL, failed);
        return;
    }
    fds->nfds = 0; /* the callee owns them now */
    done(done_arg, fds->fds, NULL);
}

void box_doors_listen(struct machine *m, machine_doors_fn *done, void *arg) {
    struct call *c = call_new(m, arg);
    c->doors = done;
    spawner_ask(m->host->spawner, box_message(m->host, PLAN_LISTEN, m->id), NULL, 0, on_doors, c);
}

static void on_dial(void *arg, const struct plan_message *m, struct fd_message *fds,
                    const struct err *failed) {
    (void)m;
    struct call *c = arg;
    machine_dial_fn *done = c->box ? c->dial : NULL;
    void *done_arg = c->arg;
    struct err err;
    call_free(c);
    if (!done)
        return;
    if (!failed && fds->nfds != 1) {
        box_no_fds(&err, "cannot take a connection to a machine");
        failed = &err;
    }
    if (failed) {
        done(done_arg, -1, failed);
        return;
    }
    fds->nfds = 0; /* the callee owns it now */
    done(done_arg, fds->fds[0], NULL);
}

void box_doors_dial(struct machine *m, uint16_t port, machine_dial_fn *done, void *arg) {
    struct call *c = call_new(m, arg);
    c->dial = done;
    struct plan_message *msg = box_message(m->host, PLAN_DIAL, m->id);
    msg->port = port;
    spawner_ask(m->host->spawner, msg, NULL, 0, on_dial, c);
}

void box_lent(void *arg, const struct plan_message *m, struct fd_message *fds,
              const struct err *failed) {
    (void)fds;
    struct call *c = arg;
    machine_lend_fn *done = c->box ? c->lend : NULL;
    void *done_arg = c->arg;
    call_free(c);
    if (done)
        done(done_arg, !failed && m->text[0], failed);
}

void box_doors_lend(struct machine *m, const char *paths, machine_lend_fn *done, void *arg) {
    struct call *c = call_new(m, arg);
    c->lend = done;
    if (((struct box *)m)->vm) {
        vm_lend(c, paths);
        return;
    }
    struct plan_message *msg = box_message(m->host, PLAN_LEND, m->id);
    snprintf(msg->text, sizeof(msg->text), "%s", paths);
    spawner_ask(m->host->spawner, msg, NULL, 0, box_lent, c);
}
