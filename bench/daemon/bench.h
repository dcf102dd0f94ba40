/*
 * What the measures of the daemon share: a daemon with a store of its own, and requests to it.
 *
 * A request that fails ends the benchmark, but for the load, which counts failures. One connection
 * belongs to one thread.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/defer.h"
#include "bench/report.h"
#include "io/http_client.h"
#include "io/place.h"

enum { BENCH_TARGET = 128, BENCH_ID = 16 };

struct bench {
    const char *build;
    bool quick; /* a smoke run: few samples, no figure to be believed */
    struct report *report;
    char dir[64];
    struct place place;
    pid_t daemon;
    struct http_client *http;
    int spawner; /* a connection to it, to ask whether it rests */
};

_Noreturn void bench_fail(const struct err *err);

/* preload: a library for the daemon, or NULL. */
void bench_start(struct bench *b, const char *preload);
/* The same beside a spawner that keeps parts of boxes in its pools, and no whole ones. */
void bench_start_bare(struct bench *b);
/* Ends daemon and spawner and removes what they wrote. */
void bench_stop(struct bench *b);
struct http_client *bench_connect(const struct bench *b);

/* One request; the whole answer in *ret, which is emptied first. -1 with *err, also for a refusal.
 */
int bench_try(struct http_client *http, const char *method, const char *target, const char *body,
              struct buf *ret, struct err *err);
void bench_ask(struct bench *b, const char *method, const char *target, const char *body,
               struct buf *ret);

/* Without steps, but for the second with that policy. */
void bench_create(struct bench *b, char ret_id[BENCH_ID]);
void bench_create_with(struct bench *b, const char *steps, char ret_id[BENCH_ID]);
void bench_destroy(struct bench *b, const char *id);
void bench_exec_target(const char *id, char ret[BENCH_TARGET]);

/* Waits until so many boxes exist, nothing of older ones is left, and the pools are full. */
void bench_rest(struct bench *b, unsigned boxes);

/* Runs a program of the host to its end, which must be a good one; how long it took. */
uint64_t bench_outside(const char *const *argv);

void measure_latency(struct bench *b, bool slow);
void measure_output(struct bench *b);
void measure_load(struct bench *b);
void measure_mcp(struct bench *b);
void measure_operator(struct bench *b);
void measure_steps(struct bench *b);
void measure_history(struct bench *b);
void measure_flat(struct bench *b);
void measure_forks(struct bench *b);
void measure_first_exec(struct bench *b); /* wants bench_start_bare() */
