/* Requests about boxes: their root filesystem, read-only views of files, and layers. */
#include "base/alloc.h"
#include "machine/box/inner.h"

#include <string.h>

void root_end(struct call *c, bool changed, const struct err *err) {
    machine_root_fn *done = c->box ? c->root : NULL;
    void *arg = c->arg;
    call_free(c);
    if (done)
        done(arg, changed, err);
}

/* The old root is already detached, so the caller must retry when the guest did not switch. */
static const struct err *must_be_asked_again(const struct err *err, struct err *ret) {
    *ret = *err;
    ret->code = ERR_UNKNOWN;
    return ret;
}

static void on_switched(void *arg, const struct frame *frame, const struct err *err) {
    struct call *c = arg;
    struct err stays;
    (void)frame;
    root_end(c, c->changed, err ? must_be_asked_again(err, &stays) : NULL);
}

/* The mounts of the new root exist; tells the guest to switch to it. */
static void on_root(void *arg, const struct plan_message *m, struct fd_message *fds,
                    const struct err *err) {
    struct call *c = arg;
    struct err lost;
    if (!err && (m->changed || c->forced) &&
        fds->nfds != 1) { /* lost: this process reached its limit of open files */
        err_set(&lost, ERR_UNKNOWN,
                "the spawner did not return the directory of the machine's new root");
        err = &lost;
    }
    c->changed = m && m->changed;
    if (!c->box || err || fds->nfds == 0)
        root_end(c, false, err);
    else
        guest_request(c->box->m.guest, (struct frame_head){.type = MSG_SWITCH_ROOT, .flags = 1},
                      NULL, fds->fds, 1, on_switched, c);
}

static void ask_root(struct call *c, const char *stack, uint32_t layer, unsigned how) {
    struct machine_host *h = c->box->m.host;
    if (c->box->vm) {
        vm_root(c, stack, layer, how);
        return;
    }
    struct plan_message *m = box_message(h, PLAN_ROOT, c->box->m.id);
    c->forced = !(how & ROOT_IF_CHANGED);
    m->layer = layer;
    m->changed = how;
    snprintf(m->plan.stack, sizeof(m->plan.stack), "%s", stack);
    spawner_ask(h->spawner, m, NULL, 0, on_root, c);
}

/* Returns NULL if no process but the guest exists. */
static const struct err *busy_error(const struct call *c, const struct frame *frame,
                                    const struct err *err, struct err *ret) {
    struct msg_busy_state state;
    if (err)
        return err;
    if (msg_get_busy(frame, &state) < 0)
        err_set(ret, ERR_INTERNAL,
                "the guest of the machine sent an invalid reply about its processes");
    else if (state.busy)
        err_set(ret, ERR_BUSY, "processes were running in machine '%s'", c->box->m.id);
    else
        return NULL;
    return ret;
}

struct root_call {
    struct call *call;
    uint32_t layer;
    unsigned how;
    char stack[];
};

static void on_busy_known(void *arg, const struct frame *frame, const struct err *err) {
    struct root_call *r DEFER_FREE = arg;
    struct call *c = r->call;
    struct err busy;
    if (!c->box)
        call_free(c);
    else if ((err = busy_error(c, frame, err, &busy)))
        root_end(c, false, err);
    else
        ask_root(c, r->stack, r->layer, r->how);
}

/* Ask first whether the guest is alone: another process would end up in a read-only root. */
void box_root(struct machine *m, const char *stack, uint32_t layer, unsigned how,
              machine_root_fn *done, void *arg) {
    struct call *c = call_new(m, arg);
    c->root = done;
    if (how & ROOT_ALONE) {
        ask_root(c, stack, layer, how);
        return;
    }
    struct root_call *r = xcalloc(1, sizeof(*r) + strlen(stack) + 1);
    *r = (struct root_call){.call = c, .layer = layer, .how = how};
    memcpy(r->stack, stack, strlen(stack) + 1);
    guest_request(m->guest, (struct frame_head){.type = MSG_BUSY}, NULL, NULL, 0, on_busy_known, r);
}

static void on_alone_known(void *arg, const struct frame *frame, const struct err *err) {
    struct call *c = arg;
    struct err busy;
    machine_done_fn *done = c->box ? c->done : NULL;
    void *done_arg = c->arg;
    if (done)
        err = busy_error(c, frame, err, &busy);
    call_free(c);
    if (done)
        done(done_arg, err);
}

void box_alone(struct machine *m, machine_done_fn *done, void *arg) {
    struct call *c = call_new(m, arg);
    c->done = done;
    guest_request(m->guest, (struct frame_head){.type = MSG_BUSY}, NULL, NULL, 0, on_alone_known,
                  c);
}

static void on_view(void *arg, const struct plan_message *m, struct fd_message *fds,
                    const struct err *err) {
    struct call *c = arg;
    struct err lost;
    (void)m;
    machine_view_fn *done = c->box ? c->view : NULL;
    void *done_arg = c->arg;
    bool is_disk = c->disk;
    if (!err && fds->nfds != 2 && !(is_disk && fds->nfds == 1)) {
        err_set(&lost, ERR_INTERNAL,
                "the spawner did not return the directories of the machine's files");
        err = &lost;
    }
    call_free(c);
    if (done && err)
        done(done_arg, -1, -1, err);
    else if (done)
        done(done_arg, TAKE_FD(fds->fds[0]), fds->nfds == 2 ? TAKE_FD(fds->fds[1]) : -1, NULL);
}

void box_view(struct machine *m, const char *stack, machine_view_fn *done, void *arg) {
    struct call *c = call_new(m, arg);
    c->view = done;
    struct plan_message *msg = box_message(m->host, PLAN_VIEW, m->id);
    snprintf(msg->plan.stack, sizeof(msg->plan.stack), "%s", stack);
    spawner_ask(m->host->spawner, msg, NULL, 0, on_view, c);
}

void box_disk(struct machine *m, const char *name, machine_view_fn *done, void *arg) {
    struct call *c = call_new(m, arg);
    c->view = done;
    c->disk = true;
    struct plan_message *msg = box_message(m->host, PLAN_DISK, m->id);
    snprintf(msg->text, sizeof(msg->text), "%s", name ? name : "");
    spawner_ask(m->host->spawner, msg, NULL, 0, on_view, c);
}

void box_peek(struct machine *m, const char *request, const int *dirs, size_t count,
              machine_view_fn *done, void *arg) {
    struct call *c = call_new(m, arg);
    c->view = done;
    struct plan_message *msg = box_message(m->host, PLAN_PEEK, m->id);
    snprintf(msg->text, sizeof(msg->text), "%s", request);
    spawner_ask(m->host->spawner, msg, dirs, count, on_view, c);
}

static void layers_ask_merge(struct machine *m, enum plan_type type, const char *stack,
                             uint32_t layer, machine_done_fn *done, void *arg) {
    struct call *c = call_new(m, arg);
    c->done = done;
    struct plan_message *msg = box_message(m->host, type, m->id);
    msg->layer = layer;
    snprintf(msg->plan.stack, sizeof(msg->plan.stack), "%s", stack);
    spawner_ask(m->host->spawner, msg, NULL, 0, call_answered, c);
}

void box_merge(struct machine *m, const char *stack, uint32_t layer, machine_done_fn *done,
               void *arg) {
    layers_ask_merge(m, PLAN_MERGE, stack, layer, done, arg);
}

void box_merge_home(struct machine *m, const char *stack, uint32_t layer, machine_done_fn *done,
                    void *arg) {
    layers_ask_merge(m, PLAN_MERGE_HOME, stack, layer, done, arg);
}

void box_keep(struct machine *m, const char *ranges, machine_done_fn *done, void *arg) {
    struct call *c = call_new(m, arg);
    c->done = done;
    struct plan_message *msg = box_message(m->host, PLAN_KEEP, m->id);
    snprintf(msg->text, sizeof(msg->text), "%s", ranges);
    spawner_ask(m->host->spawner, msg, NULL, 0, call_answered, c);
}

/* Maps the text, which is freed with the reply, to a constant. */
static const char *way_known(const char *text) {
    static const char *const ways[] = {"copy", "reflink", "btrfs", "same"};
    size_t i = sizeof(ways) / sizeof(*ways) - 1;
    while (i > 0 && strcmp(text, ways[i]) != 0)
        i--;
    return ways[i];
}

static void on_copied(void *arg, const struct plan_message *m, struct fd_message *fds,
                      const struct err *err) {
    struct call *c = arg;
    machine_copy_fn *done = c->box ? c->copied : NULL;
    void *done_arg = c->arg;
    (void)fds;
    call_free(c);
    if (done)
        done(done_arg, err ? NULL : way_known(m->text), err);
}

void box_copy(struct machine *m, uint32_t number, machine_copy_fn *done, void *arg) {
    struct call *c = call_new(m, arg);
    c->copied = done;
    struct plan_message *msg = box_message(m->host, PLAN_COPY, m->id);
    msg->layer = number;
    spawner_ask(m->host->spawner, msg, NULL, 0, on_copied, c);
}

void box_save(struct machine *m, const char *layer, const char *disk, uint32_t number,
              machine_done_fn *done, void *arg) {
    struct call *c = call_new(m, arg);
    c->done = done;
    struct plan_message *msg = box_message(m->host, PLAN_SAVE, m->id);
    msg->layer = number;
    snprintf(msg->plan.stack, sizeof(msg->plan.stack), "%s", layer);
    snprintf(msg->text, sizeof(msg->text), "%s", disk);
    spawner_ask(m->host->spawner, msg, NULL, 0, call_answered, c);
}

void box_tell(struct machine *m, const char *network, machine_done_fn *done, void *arg) {
    struct call *c = call_new(m, arg);
    c->done = done;
    struct plan_message *msg = box_message(m->host, PLAN_TELL, m->id);
    snprintf(msg->text, sizeof(msg->text), "%s", network);
    spawner_ask(m->host->spawner, msg, NULL, 0, call_answered, c);
}
