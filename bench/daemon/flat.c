/* Whether steps stay flat: with 10 and with 20,000 files below, quiet and beside busy loops. */
#include <stdio.h>

#include "bench.h"

enum { SNAPS = 40, ROUNDS = 3, WARM_UP = 2, FEW = 10, MANY = 20000, QUICK_MANY = 200 };

struct flat {
    struct samples few, many;
    double worst_few, worst; /* of 40, against their median; the worst round counts */
};

struct flat_machine {
    char id[BENCH_ID], exec[BENCH_TARGET], steps[BENCH_TARGET];
};

/* A machine with that many files in its first step. */
static void flat_make(struct bench *b, unsigned files, struct flat_machine *m) {
    struct buf answer DEFER(buf_done) = BUF(1 << 20);
    char body[128];
    bench_create_with(b, "manual", m->id);
    bench_exec_target(m->id, m->exec);
    snprintf(m->steps, sizeof(m->steps), "/v1/machines/%s/steps", m->id);
    snprintf(body, sizeof(body), "{\"command\":\"mkdir d; cd d; seq %u | xargs touch\"}", files);
    bench_ask(b, "POST", m->exec, body, &answer);
    bench_ask(b, "POST", m->steps, "{\"name\":\"base\"}", &answer);
}

/* Changes two files and takes a step; how long the step took. */
static uint64_t flat_snap(struct bench *b, const struct flat_machine *m) {
    static const char change[] = "{\"command\":\"date +%N >f; date +%N >d/1\"}";
    struct buf answer DEFER(buf_done) = BUF(1 << 20);
    bench_ask(b, "POST", m->exec, change, &answer);
    uint64_t began = now_ns();
    bench_ask(b, "POST", m->steps, "{}", &answer);
    return now_ns() - began;
}

static void flat_add(struct samples *from, struct samples *to, double *worst) {
    double ratio = (double)samples_quantile(from, 1000) / (double)samples_quantile(from, 500);
    *worst = ratio > *worst ? ratio : *worst;
    for (size_t i = 0; i < from->n; i++)
        samples_add(to, from->v[i]);
    samples_done(from);
}

/* 40 steps of each machine, in turn, so that both meet the same noise. */
static void flat_round(struct bench *b, struct flat *f) {
    struct samples few = {0}, many = {0};
    struct flat_machine light, heavy;
    flat_make(b, FEW, &light);
    flat_make(b, b->quick ? QUICK_MANY : MANY, &heavy);
    for (unsigned i = 0; i < SNAPS + WARM_UP; i++) {
        uint64_t one = flat_snap(b, &light), other = flat_snap(b, &heavy);
        if (i < WARM_UP)
            continue;
        samples_add(&few, one);
        samples_add(&many, other);
    }
    flat_add(&few, &f->few, &f->worst_few);
    flat_add(&many, &f->many, &f->worst);
    bench_destroy(b, light.id);
    bench_destroy(b, heavy.id);
}

static void flat_sample(struct bench *b, struct flat *f) {
    for (unsigned i = 0; i < (b->quick ? 1 : ROUNDS); i++)
        flat_round(b, f);
}

static double flat_ratio(struct flat *f) {
    return (double)samples_quantile(&f->many, 500) / (double)samples_quantile(&f->few, 500);
}

void measure_flat(struct bench *b) {
    static const char loops[] =
        "{\"command\":\"(while :; do :; done) & while :; do :; done\",\"background\":true}";
    struct buf answer DEFER(buf_done) = BUF(1 << 20);
    struct flat quiet = {.worst = 0}, busy = {.worst = 0};
    char id[BENCH_ID], exec[BENCH_TARGET];
    report_section(b->report, "Steps with many files below: 40 in a row, three times");
    flat_sample(b, &quiet);
    bench_create(b, id);
    bench_exec_target(id, exec);
    bench_ask(b, "POST", exec, loops, &answer);
    flat_sample(b, &busy);
    bench_destroy(b, id);
    report_times(b->report, "snap, 10 files below", &quiet.few, NULL);
    report_times(b->report, "snap, 20,000 files below", &quiet.many, &quiet.few);
    report_times(b->report, "snap, 10 files below, beside 2 busy loops", &busy.few, NULL);
    report_times(b->report, "snap, 20,000 files below, beside them", &busy.many, &busy.few);
    report_figure(b->report, "snap, 10 files below, worst of 40 / p50", quiet.worst_few, "x");
    report_bar(b->report, "snap, 20,000 / 10 files below, p50", flat_ratio(&quiet), 1.2, "x");
    report_bar(b->report, "the same beside 2 busy loops", flat_ratio(&busy), 1.3, "x");
    report_bar(b->report, "snap, 20,000 files below, worst of 40 / p50", quiet.worst, 5, "x");
    samples_done(&quiet.few);
    samples_done(&quiet.many);
    samples_done(&busy.few);
    samples_done(&busy.many);
}
