/*
 * Steps of machines on a disk: with 200 MB changed, with 10 and 50,000 files; and ten thousand
 * steps of one machine.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { ROUNDS = 10, QUICK = 2 };
enum { STEPS = 10000, QUICK_STEPS = 60, ENDS = 500, QUICK_ENDS = 20 };

static const char *const plain[] = {"/bin/true", NULL};

struct subject {
    char id[BENCH_ID], exec[BENCH_TARGET], steps[BENCH_TARGET], rewind[BENCH_TARGET];
};

static void subject_make(struct bench *b, const char *body, struct subject *s) {
    struct buf answer DEFER(buf_done) = BUF(1 << 16);
    bench_ask(b, "POST", "/v1/machines", body, &answer);
    const char *at = strstr(answer.data, "\"id\":\"m-");
    snprintf(s->id, sizeof(s->id), "%.14s", at ? at + 6 : "");
    bench_exec_target(s->id, s->exec);
    snprintf(s->steps, sizeof(s->steps), "/v1/machines/%s/steps", s->id);
    snprintf(s->rewind, sizeof(s->rewind), "/v1/machines/%s/rewind", s->id);
}

static uint64_t timed(struct bench *b, const char *target, const char *body, struct buf *answer) {
    uint64_t began = now_ns();
    bench_ask(b, "POST", target, body, answer);
    return now_ns() - began;
}

static double median(struct samples *s) {
    return (double)samples_quantile(s, 500);
}

/* ---- on a disk ---- */

enum { FEW, MANY, HEAVY, SUBJECTS };

/* A limit of more than half the memory: not in memory. */
static const char on_disk[] = "{\"steps\":\"manual\",\"limits\":{\"disk\":\"16G\"}}";
static const char *const changes[SUBJECTS] = {
    "{\"command\":\"mkdir -p d; for i in 1 2 3 4 5 6 7 8 9 10; do date +%N >d/$i; done\"}",
    "{\"command\":\"mkdir -p d; cd d; seq 50000 | xargs touch; date +%N >1\"}",
    "{\"command\":\"head -c 200M /dev/zero | tr '\\\\0' x >big; date +%N >>big\"}",
};

struct disk_samples {
    struct samples floor, snap[SUBJECTS], back[SUBJECTS];
};

static void sample_disk(struct bench *b, struct disk_samples *all) {
    struct buf answer DEFER(buf_done) = BUF(1 << 20);
    struct subject s[SUBJECTS];
    for (size_t k = 0; k < SUBJECTS; k++) {
        subject_make(b, on_disk, &s[k]);
        bench_ask(b, "POST", s[k].exec, changes[k], &answer);
        bench_ask(b, "POST", s[k].steps, "{\"name\":\"base\"}", &answer);
    }
    for (unsigned i = 0; i < (b->quick ? QUICK : ROUNDS); i++) {
        for (size_t k = 0; k < SUBJECTS; k++)
            bench_ask(b, "POST", s[k].exec, changes[k], &answer);
        samples_add(&all->floor, bench_outside(plain));
        for (size_t k = 0; k < SUBJECTS; k++)
            samples_add(&all->snap[k], timed(b, s[k].steps, "{}", &answer));
        for (size_t k = 0; k < SUBJECTS; k++)
            samples_add(&all->back[k], timed(b, s[k].rewind, "{\"step\":\"base\"}", &answer));
    }
    for (size_t k = 0; k < SUBJECTS; k++)
        bench_destroy(b, s[k].id);
}

static void report_disk(struct bench *b, struct disk_samples *all) {
    static const char *const names[SUBJECTS] = {"10 files", "50,000 files", "200 MB"};
    char name[64];
    report_times(b->report, "fork+exec of true", &all->floor, NULL);
    for (size_t k = 0; k < SUBJECTS; k++) {
        snprintf(name, sizeof(name), "snap on disk, %s changed", names[k]);
        report_times(b->report, name, &all->snap[k], &all->floor);
        snprintf(name, sizeof(name), "rewind on disk, %s changed", names[k]);
        report_times(b->report, name, &all->back[k], &all->floor);
    }
    double floor = median(&all->floor);
    report_bar(b->report, "snap on disk, 200 MB / fork+exec, p50",
               median(&all->snap[HEAVY]) / floor, 3, "x");
    report_bar(b->report, "snap on disk, 50,000 / 10 files, p50",
               median(&all->snap[MANY]) / median(&all->snap[FEW]), 1.5, "x");
    report_bar(b->report, "rewind on disk, 200 MB / fork+exec, p50",
               median(&all->back[HEAVY]) / floor, 8, "x");
    report_bar(b->report, "rewind on disk, 50,000 / 10 files, p50",
               median(&all->back[MANY]) / median(&all->back[FEW]), 1.5, "x");
}

/* ---- a long history ---- */

enum { FIRST_STEP, LAST_STEP, FIRST_STAT, LAST_STAT, LONG_WAYS };

static void take_steps(struct bench *b, const struct subject *s, unsigned count,
                       struct samples *steps, struct samples *stats) {
    struct buf answer DEFER(buf_done) = BUF(1 << 16);
    for (unsigned i = 0; i < count; i++) {
        bench_ask(b, "POST", s->exec, "{\"command\":\"date +%N >f$(( $(date +%s%N) % 97 ))\"}",
                  &answer);
        uint64_t step = timed(b, s->steps, "{}", &answer);
        if (!steps)
            continue;
        samples_add(steps, step);
        samples_add(stats,
                    timed(b, s->exec, "{\"command\":\"ls -l /usr/bin >/dev/null\"}", &answer));
    }
}

static void measure_long(struct bench *b) {
    struct samples all[LONG_WAYS] = {0};
    struct subject s;
    unsigned steps = b->quick ? QUICK_STEPS : STEPS, ends = b->quick ? QUICK_ENDS : ENDS;
    subject_make(b, "{\"steps\":\"manual\"}", &s);
    take_steps(b, &s, ends, &all[FIRST_STEP], &all[FIRST_STAT]);
    take_steps(b, &s, steps - 2 * ends, NULL, NULL);
    take_steps(b, &s, ends, &all[LAST_STEP], &all[LAST_STAT]);
    bench_destroy(b, s.id);
    report_times(b->report, "step, the first 500 of 10,000", &all[FIRST_STEP], NULL);
    report_times(b->report, "step, the last 500", &all[LAST_STEP], &all[FIRST_STEP]);
    report_times(b->report, "ls -l /usr/bin after each of the first", &all[FIRST_STAT], NULL);
    report_times(b->report, "ls -l /usr/bin after each of the last", &all[LAST_STAT],
                 &all[FIRST_STAT]);
    report_bar(b->report, "step, last / first of 10,000, p50",
               median(&all[LAST_STEP]) / median(&all[FIRST_STEP]), 1.5, "x");
    report_bar(b->report, "first stat, last / first of 10,000, p50",
               median(&all[LAST_STAT]) / median(&all[FIRST_STAT]), 1.5, "x");
    for (size_t k = 0; k < LONG_WAYS; k++)
        samples_done(&all[k]);
}

void measure_history(struct bench *b) {
    struct disk_samples all = {.floor = {0}};
    report_section(b->report, "History: on disk, ten thousand steps");
    sample_disk(b, &all);
    report_disk(b, &all);
    samples_done(&all.floor);
    for (size_t k = 0; k < SUBJECTS; k++) {
        samples_done(&all.snap[k]);
        samples_done(&all.back[k]);
    }
    measure_long(b);
}
