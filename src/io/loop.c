#include "io/loop.h"

#include <assert.h>
#include <stddef.h>
#include <uv.h>

#include "base/alloc.h"
#include "base/defer.h"

struct loop {
    uv_loop_t uv;
    uv_idle_t idle;         /* active while calls are queued, so that the loop does not wait */
    struct loop_call calls; /* head of the ring of deferred calls */
    size_t jobs;            /* number of unfinished jobs */
};

struct loop_watch {
    uv_poll_t uv;
    loop_watch_fn *fn;
    void *arg;
    unsigned events;
};

struct loop_timer {
    uv_timer_t uv;
    loop_fn *fn;
    void *arg;
};

struct loop_signal {
    uv_signal_t uv;
    loop_signal_fn *fn;
    void *arg;
};

struct job {
    uv_work_t uv;
    struct loop *loop;
    loop_fn *run, *done;
    void *arg;
};

/* Each libuv handle is the first member of its allocated struct. */
static void handle_free(uv_handle_t *handle) {
    free(handle);
}

static void handle_close(uv_handle_t *handle) {
    if (!uv_is_closing(handle))
        uv_close(handle, handle_free);
}

/* Creation, run and end of the loop */

static void on_idle(uv_idle_t *idle);

struct loop *loop_new(struct err *err) {
    struct loop *loop = xnew(struct loop);
    int r = uv_loop_init(&loop->uv);
    if (r < 0) {
        free(loop);
        err_num(err, r, "cannot start the event loop");
        return NULL;
    }
    uv_idle_init(&loop->uv, &loop->idle);
    loop->idle.data = loop;
    loop->calls.next = loop->calls.prev = &loop->calls;
    return loop;
}

static void close_what_is_left(uv_handle_t *handle, void *arg) {
    struct loop *loop = arg;
    if (handle != (uv_handle_t *)&loop->idle)
        handle_close(handle);
}

void loop_free(struct loop *loop) {
    if (!loop)
        return;
    /* `done` of a last job may open new handles: repeat until none is left. */
    do {
        uv_walk(&loop->uv, close_what_is_left, loop);
        uv_idle_stop(&loop->idle);
        uv_run(&loop->uv, UV_RUN_ONCE);
    } while (uv_loop_alive(&loop->uv));
    uv_close((uv_handle_t *)&loop->idle, NULL);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    int r = uv_loop_close(&loop->uv);
    assert(r == 0);
    (void)r;
    free(loop);
}

void loop_freep(struct loop **loop) {
    loop_free(*loop);
}

void loop_run(struct loop *loop) {
    uv_run(&loop->uv, UV_RUN_DEFAULT);
}

void loop_stop(struct loop *loop) {
    uv_stop(&loop->uv);
}

uint64_t loop_now_ms(const struct loop *loop) {
    return uv_now(&loop->uv);
}

/* Watches */

static const struct {
    unsigned ours;
    int uv;
} event_map[] = {
    {LOOP_READ, UV_READABLE},
    {LOOP_WRITE, UV_WRITABLE},
    {LOOP_HANGUP, UV_DISCONNECT},
};
enum { EVENT_KINDS = sizeof(event_map) / sizeof(event_map[0]) };

static void on_poll(uv_poll_t *uv, int status, int happened) {
    struct loop_watch *w = (struct loop_watch *)uv;
    unsigned events = 0;
    for (int i = 0; i < EVENT_KINDS; i++)
        if (happened & event_map[i].uv)
            events |= event_map[i].ours;
    if (status < 0) {
        uv_poll_stop(uv);
        w->events = 0;
        events = LOOP_ERROR;
    }
    if (events)
        w->fn(w->arg, events);
}

int loop_watch_new(struct loop *loop, int fd, unsigned events, loop_watch_fn *fn, void *arg,
                   struct loop_watch **ret, struct err *err) {
    struct loop_watch *w = xnew(struct loop_watch);
    w->fn = fn;
    w->arg = arg;
    int r = uv_poll_init(&loop->uv, &w->uv, fd);
    if (r < 0) {
        free(w);
        return err_num(err, r, "cannot watch file descriptor %d", fd);
    }
    loop_watch_set(w, events);
    *ret = w;
    return 0;
}

void loop_watch_set(struct loop_watch *w, unsigned events) {
    int wanted = 0;
    for (int i = 0; i < EVENT_KINDS; i++)
        if (events & event_map[i].ours)
            wanted |= event_map[i].uv;
    if (events == w->events)
        return;
    w->events = events;
    /* This can fail only for a handle that is being closed. */
    int r = wanted ? uv_poll_start(&w->uv, wanted, on_poll) : uv_poll_stop(&w->uv);
    assert(r == 0);
    (void)r;
}

void loop_watch_free(struct loop_watch *w) {
    if (w)
        handle_close((uv_handle_t *)&w->uv);
}

/* Timers */

static void on_timer(uv_timer_t *uv) {
    struct loop_timer *t = (struct loop_timer *)uv;
    t->fn(t->arg);
}

struct loop_timer *loop_timer_new(struct loop *loop, loop_fn *fn, void *arg) {
    struct loop_timer *t = xnew(struct loop_timer);
    t->fn = fn;
    t->arg = arg;
    uv_timer_init(&loop->uv, &t->uv);
    return t;
}

void loop_timer_start(struct loop_timer *t, uint64_t delay_ms, uint64_t repeat_ms) {
    uv_timer_start(&t->uv, on_timer, delay_ms, repeat_ms);
}

void loop_timer_stop(struct loop_timer *t) {
    uv_timer_stop(&t->uv);
}

void loop_timer_free(struct loop_timer *t) {
    if (t)
        handle_close((uv_handle_t *)&t->uv);
}

/* Deferred calls: a ring in the callers' own memory */

static bool is_queued(const struct loop_call *call) {
    return call->next;
}

static void unlink_call(struct loop_call *call) {
    call->prev->next = call->next;
    call->next->prev = call->prev;
    call->next = call->prev = NULL;
}

void loop_defer(struct loop *loop, struct loop_call *call) {
    if (is_queued(call))
        return;
    if (loop->calls.next == &loop->calls)
        uv_idle_start(&loop->idle, on_idle);
    call->next = &loop->calls;
    call->prev = loop->calls.prev;
    call->prev->next = loop->calls.prev = call;
}

void loop_call_cancel(struct loop *loop, struct loop_call *call) {
    if (!is_queued(call))
        return;
    unlink_call(call);
    if (loop->calls.next == &loop->calls)
        uv_idle_stop(&loop->idle);
}

/*
 * Calls that are queued meanwhile wait for the next turn of the loop, so that descriptors are
 * served too.
 */
static void on_idle(uv_idle_t *idle) {
    struct loop *loop = idle->data;
    struct loop_call mark = {0};
    loop_defer(loop, &mark);
    while (loop->calls.next != &mark) {
        struct loop_call *call = loop->calls.next;
        unlink_call(call);
        call->fn(call->arg);
    }
    loop_call_cancel(loop, &mark);
}

/* Jobs */

static void job_run(uv_work_t *uv) {
    struct job *j = (struct job *)uv;
    j->run(j->arg);
}

static void job_done(uv_work_t *uv, int status) {
    (void)status; /* jobs are never cancelled */
    struct job j = *(struct job *)uv;
    free(uv);
    j.loop->jobs--;
    j.done(j.arg);
}

void loop_work(struct loop *loop, loop_fn *run, loop_fn *done, void *arg) {
    struct job *j = xnew(struct job);
    j->loop = loop;
    j->run = run;
    j->done = done;
    j->arg = arg;
    loop->jobs++;
    uv_queue_work(&loop->uv, &j->uv, job_run, job_done);
}

void loop_join(struct loop *loop) {
    while (loop->jobs)
        uv_run(&loop->uv, UV_RUN_ONCE);
}

void loop_set_workers(unsigned count) {
    char text[16];
    snprintf(text, sizeof(text), "%u", count);
    setenv("UV_THREADPOOL_SIZE", text, 1);
}

/* Signals */

static void on_signal(uv_signal_t *uv, int signum) {
    struct loop_signal *s = (struct loop_signal *)uv;
    s->fn(s->arg, signum);
}

int loop_on_signal(struct loop *loop, int signum, loop_signal_fn *fn, void *arg, struct err *err) {
    struct loop_signal *s = xnew(struct loop_signal);
    s->fn = fn;
    s->arg = arg;
    uv_signal_init(&loop->uv, &s->uv);
    int r = uv_signal_start(&s->uv, on_signal, signum);
    if (r < 0) {
        handle_close((uv_handle_t *)&s->uv);
        return err_num(err, r, "cannot wait for signal %d", signum);
    }
    /* A watched signal alone does not keep the loop running. */
    uv_unref((uv_handle_t *)&s->uv);
    return 0;
}
