/* Steps and rewinds beside fork+exec: with few changed files and with many. */
#include <stdio.h>
#include <unistd.h>

#include "bench.h"

enum { ROUNDS = 100, QUICK = 5, WARM_UP = 3, FEW = 10, MANY = 5000 };

static const char *const plain[] = {"/bin/true", NULL};

/* A machine whose upper holds so many changed files before each step. */
struct subject {
    char id[BENCH_ID], exec[BENCH_TARGET], steps[BENCH_TARGET], rewind[BENCH_TARGET];
    char change[256];
};

static void subject_make(struct bench *b, unsigned files, const char *policy, struct subject *s) {
    bench_create_with(b, policy, s->id);
    bench_exec_target(s->id, s->exec);
    snprintf(s->steps, sizeof(s->steps), "/v1/machines/%s/steps", s->id);
    snprintf(s->rewind, sizeof(s->rewind), "/v1/machines/%s/rewind", s->id);
    snprintf(s->change, sizeof(s->change),
             "{\"command\":\"mkdir -p d; i=0; while [ $i -lt %u ]; do : >d/$i; i=$((i+1)); "
             "done; date +%%N >d/0\"}",
             files);
}

/* Where all go back to: with a name, or it would be dropped when history fills the disk. */
static void subject_begin(struct bench *b, const struct subject *s, struct buf *answer) {
    bench_ask(b, "POST", s->exec, s->change, answer);
    bench_ask(b, "POST", s->steps, "{\"name\":\"base\"}", answer);
}

static uint64_t timed(struct bench *b, const char *target, const char *body, struct buf *answer) {
    uint64_t began = now_ns();
    bench_ask(b, "POST", target, body, answer);
    return now_ns() - began;
}

enum { FLOOR, SNAP_FEW, SNAP_MANY, BACK_FEW, BACK_MANY, WAYS };

static void sample_all(struct bench *b, struct samples all[WAYS]) {
    struct buf answer DEFER(buf_done) = BUF(1 << 20);
    struct subject few, many;
    unsigned rounds = b->quick ? QUICK : ROUNDS;
    subject_make(b, FEW, "manual", &few);
    subject_make(b, MANY, "manual", &many);
    subject_begin(b, &few, &answer);
    subject_begin(b, &many, &answer);
    for (unsigned i = 0; i < rounds + WARM_UP; i++) {
        uint64_t t[WAYS];
        bench_ask(b, "POST", few.exec, few.change, &answer);
        bench_ask(b, "POST", many.exec, many.change, &answer);
        t[FLOOR] = bench_outside(plain);
        t[SNAP_FEW] = timed(b, few.steps, "{}", &answer);
        t[SNAP_MANY] = timed(b, many.steps, "{}", &answer);
        t[BACK_FEW] = timed(b, few.rewind, "{\"step\":\"base\"}", &answer);
        t[BACK_MANY] = timed(b, many.rewind, "{\"step\":\"base\"}", &answer);
        usleep(5000);
        for (size_t k = 0; i >= WARM_UP && k < WAYS; k++)
            samples_add(&all[k], t[k]);
    }
    bench_destroy(b, few.id);
    bench_destroy(b, many.id);
}

/* A command that writes, with a step after each and without: the answer, and two in a row. */
static void sample_execs(struct bench *b, struct samples all[4]) {
    struct buf answer DEFER(buf_done) = BUF(1 << 20);
    struct subject s[2];
    unsigned rounds = b->quick ? QUICK : 2 * ROUNDS;
    static const char write_one[] = "{\"argv\":[\"/bin/touch\",\"f\"]}";
    subject_make(b, FEW, "manual", &s[0]);
    subject_make(b, FEW, "every", &s[1]);
    for (unsigned i = 0; i < rounds + WARM_UP; i++)
        for (size_t k = 0; k < 2; k++) {
            usleep(5000);
            uint64_t one = timed(b, s[k].exec, write_one, &answer);
            uint64_t next = timed(b, s[k].exec, write_one, &answer);
            if (i >= WARM_UP) {
                samples_add(&all[2 * k], one);
                samples_add(&all[2 * k + 1], next);
            }
        }
    bench_destroy(b, s[0].id);
    bench_destroy(b, s[1].id);
}

static double median(struct samples *s) {
    return (double)samples_quantile(s, 500);
}

void measure_steps(struct bench *b) {
    static const char *const names[WAYS] = {"fork+exec of true", "snap, 10 changed files",
                                            "snap, 5,000 changed files", "rewind, 10 changed files",
                                            "rewind, 5,000 changed files"};
    static const char *const exec_names[4] = {"touch, steps manual", "a second one at once",
                                              "touch, a step after each", "a second one at once"};
    struct samples all[WAYS] = {0}, execs[4] = {0};
    report_section(b->report, "Steps and rewind");
    sample_all(b, all);
    sample_execs(b, execs);
    for (size_t k = 0; k < WAYS; k++)
        report_times(b->report, names[k], &all[k], k ? &all[FLOOR] : NULL);
    for (size_t k = 0; k < 4; k++)
        report_times(b->report, exec_names[k], &execs[k], &all[FLOOR]);
    double floor = median(&all[FLOOR]);
    report_bar(b->report, "snap / fork+exec, p50", median(&all[SNAP_MANY]) / floor, 3, "x");
    report_bar(b->report, "snap, 5,000 / 10 files, p50",
               median(&all[SNAP_MANY]) / median(&all[SNAP_FEW]), 1.5, "x");
    report_bar(b->report, "rewind / fork+exec, p50", median(&all[BACK_MANY]) / floor, 8, "x");
    report_bar(b->report, "rewind, 5,000 / 10 files, p50",
               median(&all[BACK_MANY]) / median(&all[BACK_FEW]), 1.5, "x");
    report_bar(b->report, "answer with a step after it / without, p50",
               median(&execs[2]) / median(&execs[0]), 1.05, "x");
    report_bar(b->report, "a step delays the next command / fork+exec, p50",
               (median(&execs[3]) - median(&execs[1])) / floor, 1.5, "x");
    report_bar(b->report, "back-to-back exec with steps / without, p50",
               median(&execs[3]) / median(&execs[1]), 1.75, "x");
    for (size_t k = 0; k < WAYS; k++)
        samples_done(&all[k]);
    for (size_t k = 0; k < 4; k++)
        samples_done(&execs[k]);
}
