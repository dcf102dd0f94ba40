/* The memory of a vm: saved by the spawner while the vm stands still, and told to its guest. */
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "machine/box/inner.h"

enum { MEMORY_MS = 180000, MEMORY_STEP_MS = 3 };

static void ask_memory(void *arg);

static void on_memory(void *arg, const struct plan_message *m, struct fd_message *fds,
                      const struct err *err) {
    struct call *c = arg;
    struct loop *loop = c->box ? c->box->m.host->loop : NULL;
    if (!loop || !err || err->code != ERR_BUSY || loop_now_ms(loop) >= c->until_ms) {
        call_answered(c, m, fds, err);
        return;
    }
    if (!c->timer)
        c->timer = loop_timer_new(loop, ask_memory, c);
    c->rests = true;
    loop_timer_start(c->timer, MEMORY_STEP_MS, 0);
}

static void ask_memory(void *arg) {
    struct call *c = arg;
    struct machine_host *h = c->box->m.host;
    struct plan_message *m = box_message(h, PLAN_MEMORY, c->box->m.id);
    c->rests = false;
    m->changed = c->memory;
    m->plan.disk_bytes = c->max_bytes;
    spawner_ask(h->spawner, m, &c->file, c->file > 0, on_memory, c);
}

static struct call *memory_call(struct machine *m, machine_done_fn *done, void *arg) {
    struct call *c = call_new(m, arg);
    c->done = done;
    c->until_ms = loop_now_ms(m->host->loop) + MEMORY_MS;
    return c;
}

void box_save_memory(struct machine *m, int file, uint64_t max_bytes, machine_done_fn *done,
                     void *arg) {
    struct call *c = memory_call(m, done, arg);
    c->memory = MEMORY_SAVE;
    c->file = file;
    c->max_bytes = max_bytes;
    ask_memory(c);
}

void box_go_on(struct machine *m, enum plan_memory how, machine_done_fn *done, void *arg) {
    struct call *c = memory_call(m, done, arg);
    c->memory = how;
    ask_memory(c);
}

void vm_tell_resumed(struct box *b, const char *hostname, enum vm_resumed who,
                     guest_reply_fn *done) {
    struct timespec now;
    uint8_t seed[32];
    clock_gettime(CLOCK_REALTIME, &now);
    if (getrandom(seed, sizeof(seed), 0) != sizeof(seed))
        abort();
    const struct msg_resumed m = {.seconds = (uint64_t)now.tv_sec,
                                  .nanoseconds = (uint64_t)now.tv_nsec,
                                  .who = (uint8_t)who,
                                  .hostname = {hostname, (uint32_t)strlen(hostname)},
                                  .seed = {seed, sizeof(seed)}};
    guest_request(b->fresh, (struct frame_head){.type = MSG_RESUMED}, &m, NULL, 0, done, b);
}
