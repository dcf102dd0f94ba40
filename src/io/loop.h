/*
 * The loop: one thread that waits for descriptors, times, signals and finished jobs.
 *
 * A thin layer over libuv, which no other header exposes. Everything here belongs to the thread
 * that runs the loop, except the `run` part of a job. Callbacks must not block: work that may
 * block is a job. A callback may free any object of the loop, its own included. Small
 * allocations abort when memory is gone.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct loop;
struct loop_watch;
struct loop_timer;

typedef void loop_fn(void *arg);

struct loop *loop_new(struct err *err);

/*
 * Free your watches and timers first; remaining ones are closed here. Waits for queued jobs and
 * calls their `done`, so that no data of a job is lost. Deferred calls are dropped.
 */
void loop_free(struct loop *loop);
void loop_freep(struct loop **loop);

/* Returns after loop_stop(), or when there is nothing left to wait for. */
void loop_run(struct loop *loop);
void loop_stop(struct loop *loop);

/* Monotonic milliseconds, read once per turn of the loop: cheap, and exact enough for timeouts. */
uint64_t loop_now_ms(const struct loop *loop);

/* Events that a descriptor is watched for, and that are reported. */
enum loop_event {
    LOOP_READ = 1,
    LOOP_WRITE = 2,
    LOOP_HANGUP = 4, /* the peer has finished sending; useful while you do not read */
    LOOP_ERROR = 8,  /* always reported; the watch is then off until loop_watch_set() */
};

/*
 * Level-triggered: an event is reported again until it is handled or no longer watched for. The
 * descriptor becomes nonblocking. The caller still owns it and closes it after it frees the watch.
 * With events = 0 the watch reports nothing yet.
 */
typedef void loop_watch_fn(void *arg, unsigned events);
int loop_watch_new(struct loop *loop, int fd, unsigned events, loop_watch_fn *fn, void *arg,
                   struct loop_watch **ret, struct err *err);
void loop_watch_set(struct loop_watch *watch, unsigned events);
void loop_watch_free(struct loop_watch *watch); /* NULL is allowed, here and below */

/* Creates a stopped timer. Starting a running timer restarts it. repeat_ms = 0: it fires once. */
struct loop_timer *loop_timer_new(struct loop *loop, loop_fn *fn, void *arg);
void loop_timer_start(struct loop_timer *timer, uint64_t delay_ms, uint64_t repeat_ms);
void loop_timer_stop(struct loop_timer *timer);
void loop_timer_free(struct loop_timer *timer);

/*
 * A deferred call: fn runs after the present callback has returned. The caller owns the struct (a
 * member of its own object, zero except for fn and arg) and must cancel the call before it frees
 * the struct. Calls run in order, before the loop waits again; a call that is already queued keeps
 * its place.
 */
struct loop_call {
    loop_fn *fn;
    void *arg;
    struct loop_call *next, *prev; /* used by the loop */
};
void loop_defer(struct loop *loop, struct loop_call *call);
void loop_call_cancel(struct loop *loop, struct loop_call *call);

/*
 * Queues a job: run(arg) on a worker thread, then done(arg) on the loop, exactly once each. Until
 * `done` is called, only the job may use the data behind arg.
 */
void loop_work(struct loop *loop, loop_fn *run, loop_fn *done, void *arg);

/* Runs the loop until no job is left, including new ones. Do not call it from a callback. */
void loop_join(struct loop *loop);

/*
 * Sets the number of worker threads of the process (default: four). Call it before the first job.
 */
void loop_set_workers(unsigned count);

/* Calls fn for each signal until the loop is freed. Each signal can have one function. */
typedef void loop_signal_fn(void *arg, int signum);
int loop_on_signal(struct loop *loop, int signum, loop_signal_fn *fn, void *arg, struct err *err);
