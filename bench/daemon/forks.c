/*
 * Forks of a machine with 5,000 changed files: the first result of a command in one, beside a
 * machine that is made without a ready box; and a hundred of them in one request.
 */
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "bench/settle.h"

enum { ROUNDS = 200, QUICK = 3, WARM_UP = 5, CROWD = 100, QUICK_CROWD = 5, CROWDS = 5 };

static const char exec_true[] = "{\"argv\":[\"/bin/true\"]}";

struct source {
    char id[BENCH_ID], fork[BENCH_TARGET];
};

static void source_make(struct bench *b, struct source *s, struct buf *answer) {
    char target[BENCH_TARGET];
    bench_create(b, s->id);
    bench_exec_target(s->id, target);
    snprintf(s->fork, sizeof(s->fork), "/v1/machines/%s/fork", s->id);
    bench_ask(b, "POST", target, "{\"command\":\"mkdir d; cd d; seq 5000 | xargs touch\"}", answer);
    snprintf(target, sizeof(target), "/v1/machines/%s/steps", s->id);
    bench_ask(b, "POST", target, "{\"name\":\"base\"}", answer);
}

static uint64_t fork_some(struct bench *b, const struct source *s, unsigned count,
                          struct buf *answer) {
    char body[64];
    snprintf(body, sizeof(body), "{\"step\":\"base\",\"count\":%u}", count);
    uint64_t began = now_ns();
    bench_ask(b, "POST", s->fork, body, answer);
    return now_ns() - began;
}

/* Ids of the machines in an answer; destroys them all. */
static void destroy_all(struct bench *b, const char *text) {
    char id[BENCH_ID];
    for (const char *at = text; (at = strstr(at, "{\"id\":\"m-")); at += 8) {
        snprintf(id, sizeof(id), "%.14s", at + 7);
        bench_destroy(b, id);
    }
}

/* ---- the first result of a command ---- */

enum { FORKED, MADE, WAYS };

static uint64_t first_result(struct bench *b, unsigned way, const struct source *s,
                             struct buf *answer) {
    char id[BENCH_ID], target[BENCH_TARGET];
    uint64_t began = now_ns();
    if (way == FORKED) {
        fork_some(b, s, 1, answer);
        const char *at = strstr(answer->data, "\"id\":\"m-");
        snprintf(id, sizeof(id), "%.14s", at ? at + 6 : "");
    } else {
        bench_create(b, id);
    }
    bench_exec_target(id, target);
    bench_ask(b, "POST", target, exec_true, answer);
    uint64_t took = now_ns() - began;
    bench_destroy(b, id);
    return took;
}

void measure_first_exec(struct bench *b) {
    struct buf answer DEFER(buf_done) = BUF(1 << 20);
    struct samples all[WAYS] = {0};
    unsigned order[WAYS] = {FORKED, MADE}, rounds = b->quick ? QUICK : ROUNDS;
    struct source s;
    uint64_t seed = 1;
    report_section(b->report, "A fork's first command, beside a machine made without a ready box");
    source_make(b, &s, &answer);
    for (unsigned i = 0; i < rounds + WARM_UP; i++) {
        shuffle(order, WAYS, &seed);
        for (size_t k = 0; k < WAYS; k++) {
            bench_rest(b, 1);
            uint64_t took = first_result(b, order[k], &s, &answer);
            if (i >= WARM_UP)
                samples_add(&all[order[k]], took);
        }
    }
    bench_destroy(b, s.id);
    report_times(b->report, "create without a ready box, exec true", &all[MADE], NULL);
    report_times(b->report, "fork of a machine with 5,000 files, exec true", &all[FORKED],
                 &all[MADE]);
    report_bar(b->report, "fork to first exec / create to first exec, p50",
               (double)samples_quantile(&all[FORKED], 500) /
                   (double)samples_quantile(&all[MADE], 500),
               1.3, "x");
    for (size_t k = 0; k < WAYS; k++)
        samples_done(&all[k]);
}

/* ---- a crowd ---- */

void measure_forks(struct bench *b) {
    struct buf answer DEFER(buf_done) = BUF(1 << 20);
    struct samples one = {0}, many = {0};
    unsigned crowd = b->quick ? QUICK_CROWD : CROWD;
    struct source s;
    report_section(b->report, "A hundred forks in one request");
    source_make(b, &s, &answer);
    for (unsigned i = 0; i < (b->quick ? QUICK : ROUNDS); i++) {
        bench_rest(b, 1);
        samples_add(&one, fork_some(b, &s, 1, &answer));
        destroy_all(b, answer.data);
    }
    for (unsigned i = 0; i < (b->quick ? 1 : CROWDS); i++) {
        bench_rest(b, 1);
        samples_add(&many, fork_some(b, &s, crowd, &answer));
        destroy_all(b, answer.data);
    }
    bench_destroy(b, s.id);
    report_times(b->report, "one fork of a machine with 5,000 files", &one, NULL);
    report_times(b->report, "100 forks of it in one request", &many, &one);
    report_bar(b->report, "100 forks / one fork, p50",
               (double)samples_quantile(&many, 500) / (double)samples_quantile(&one, 500), crowd,
               "x");
    samples_done(&one);
    samples_done(&many);
}
