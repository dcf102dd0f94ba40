/* The start and ready commands of a template, in a new sandbox. */
#include <stdlib.h>
#include <string.h>

#include "api/e2b/templates.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "service/exec/exec.h"

enum { AGAIN_MS = 250 };

struct starting {
    struct loop *loop;
    struct service *service;
    struct caller who;
    char machine[ID_SIZE];
    const char *argv[4];
    char *start, *ready;
    struct exec_request request;
    struct exec *exec; /* the ready command that runs */
    struct exec_follower follower;
    struct loop_timer *timer;
    uint64_t end_ms;
    loop_fn *done;
    void *arg;
};

static void ready_release(struct starting *s) {
    if (!s->exec)
        return;
    exec_unfollow(&s->follower);
    exec_unref(TAKE(s->exec));
}

static void starting_end(struct starting *s) {
    loop_fn *done = s->done;
    void *arg = s->arg;
    ready_release(s);
    loop_timer_free(s->timer);
    free(s->start);
    free(s->ready);
    free(s);
    done(arg);
}

static void command_run(struct starting *s, const char *command, service_exec_fn *begun) {
    static const uint8_t no_hash[SHA256_BYTES];
    const char *const argv[] = {"/bin/bash", "-l", "-c", command};
    memcpy(s->argv, argv, sizeof(argv));
    s->request = (struct exec_request){.argv = {s->argv, 4}, .background = true};
    service_exec(s->service, &s->who, s->machine, &s->request, no_hash, NULL, 0, begun, s);
}

/* ---- the ready command, again and again ---- */

static void ready_changed(void *arg) {
    struct starting *s = arg;
    struct exec_view view;
    if (!exec_is_over(s->exec))
        return;
    exec_view(s->exec, &view);
    bool is_ready = view.status == 0;
    if (is_ready || monotonic_ms() >= s->end_ms) {
        starting_end(s);
        return;
    }
    ready_release(s);
    loop_timer_start(s->timer, AGAIN_MS, 0);
}

static void ready_begun(void *arg, struct exec *x, const struct err *err) {
    struct starting *s = arg;
    if (err) {
        starting_end(s);
        return;
    }
    s->exec = x;
    s->follower = (struct exec_follower){.changed = ready_changed, .arg = s};
    exec_follow(x, &s->follower);
    uint64_t now_ms = monotonic_ms();
    loop_timer_start(s->timer, now_ms < s->end_ms ? s->end_ms - now_ms : 1, 0);
    ready_changed(s);
}

/* Between two attempts: the next one. During an attempt: it took too long. */
static void ready_timer(void *arg) {
    struct starting *s = arg;
    if (s->exec || monotonic_ms() >= s->end_ms)
        starting_end(s);
    else
        command_run(s, s->ready, ready_begun);
}

/* ---- the start command ---- */

static void start_begun(void *arg, struct exec *x, const struct err *err) {
    struct starting *s = arg;
    if (x)
        exec_unref(x);
    if (err || !s->ready)
        starting_end(s);
    else
        command_run(s, s->ready, ready_begun);
}

void template_start_run(struct e2b_call *c, const char *machine, const struct template_start *start,
                        loop_fn *done, void *arg) {
    struct starting *s = xnew(struct starting);
    *s = (struct starting){.loop = http_loop(c->http),
                           .service = c->service,
                           .who = c->who,
                           .start = start->start ? xstrdup(start->start) : NULL,
                           .ready = start->ready ? xstrdup(start->ready) : NULL,
                           .end_ms = monotonic_ms() + TEMPLATE_READY_MS,
                           .done = done,
                           .arg = arg};
    memcpy(s->machine, machine, sizeof(s->machine));
    s->timer = loop_timer_new(s->loop, ready_timer, s);
    if (s->start)
        command_run(s, s->start, start_begun);
    else
        start_begun(s, NULL, NULL);
}
