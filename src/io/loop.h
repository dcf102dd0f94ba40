/*
 * The loop: one thread that waits for descriptors, times, signals and finished jobs.
 *
 * Thin glue over libuv; no other header shows it. Everything here belongs to the thread
 * that runs the loop, except the `run` half of a job. Callbacks must not block: what may
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
 * Free your watches and timers first; what is left is closed here. Jobs that were given are
 * waited for and their `done` is called, so no job's data is ever lost. Deferred calls are not
 * made any more.
 */
void loop_free(struct loop *loop);
void loop_freep(struct loop **loop);

/* Returns after loop_stop(), or when there is nothing left to wait for. */
void loop_run(struct loop *loop);
void loop_stop(struct loop *loop);

/* Monotonic milliseconds, read once a turn of the loop: cheap, and good enough for timeouts. */
uint64_t loop_now_ms(const struct loop *loop);

/* What a descriptor is watched for, and what has happened to it. */
enum loop_event {
    LOOP_READ = 1,
    LOOP_WRITE = 2,
    LOOP_HANGUP = 4, /* the peer will send no more: watch for it while you do not read */
    LOOP_ERROR = 8,  /* always told; the watch is then off until the next loop_watch_set() */
};

/*
 * Level-triggered: it is told again until it is dealt with or no longer watched for. The
 * descriptor becomes nonblocking and stays the caller's: close it after the watch is freed.
 * events = 0 makes a watch that sleeps.
 */
typedef void loop_watch_fn(void *arg, unsigned events);
int loop_watch_new(struct loop *loop, int fd, unsigned events, loop_watch_fn *fn, void *arg,
                   struct loop_watch **ret, struct err *err);
void loop_watch_set(struct loop_watch *watch, unsigned events);
void loop_watch_free(struct loop_watch *watch); /* NULL is fine, here and below */

/* Made asleep. Starting a timer that runs sets it anew. repeat_ms = 0: once. */
struct loop_timer *loop_timer_new(struct loop *loop, loop_fn *fn, void *arg);
void loop_timer_start(struct loop_timer *timer, uint64_t delay_ms, uint64_t repeat_ms);
void loop_timer_stop(struct loop_timer *timer);
void loop_timer_free(struct loop_timer *timer);

/*
 * "Call me when this callback has returned", to get out of somebody's stack. The caller owns
 * the struct (a member of its own object, zero but for fn and arg) and must cancel it before
 * it goes away. Calls are made in order, before the loop waits again; one that is queued
 * already stays where it is.
 */
struct loop_call {
    loop_fn *fn;
    void *arg;
    struct loop_call *next, *prev; /* the loop's */
};
void loop_defer(struct loop *loop, struct loop_call *call);
void loop_call_cancel(struct loop *loop, struct loop_call *call);

/*
 * A job: run(arg) on a worker thread, then done(arg) on the loop, exactly once each. The job
 * owns what arg points to from here until done; nothing else may touch it meanwhile.
 */
void loop_work(struct loop *loop, loop_fn *run, loop_fn *done, void *arg);

/* Turns the loop until no job is left, those given meanwhile included. Not from a callback. */
void loop_join(struct loop *loop);

/* How many workers the process has: call it before the first job. Four by default. */
void loop_set_workers(unsigned count);

/* Until the loop is freed. One function a signal. */
typedef void loop_signal_fn(void *arg, int signum);
int loop_on_signal(struct loop *loop, int signum, loop_signal_fn *fn, void *arg, struct err *err);
