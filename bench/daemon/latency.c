/* A machine and a command on one kept connection, beside fork+exec and bubblewrap. */
#include <unistd.h>

#include "bench.h"
#include "bench/settle.h"

enum { ROUNDS = 400, QUICK = 10, WARM_UP = 10 };

static const char *const plain[] = {"/bin/true", NULL};
static const char *const bwrap[] = {
    "/usr/bin/bwrap", "--unshare-all", "--ro-bind", "/",         "/", "--proc",
    "/proc",          "--dev",         "/dev",      "/bin/true", NULL};
static const char exec_true[] = "{\"argv\":[\"/bin/true\"]}";

static uint64_t run_once(struct bench *b, struct buf *answer) {
    uint64_t began = now_ns();
    bench_ask(b, "POST", "/v1/run", "{\"exec\":{\"argv\":[\"/bin/true\"]}}", answer);
    return now_ns() - began;
}

static uint64_t exec_in(struct bench *b, const char *target, struct buf *answer) {
    uint64_t began = now_ns();
    bench_ask(b, "POST", target, exec_true, answer);
    return now_ns() - began;
}

static uint64_t create_and_exec(struct bench *b, struct buf *answer) {
    char id[BENCH_ID], target[BENCH_TARGET];
    uint64_t began = now_ns();
    bench_create(b, id);
    bench_exec_target(id, target);
    bench_ask(b, "POST", target, exec_true, answer);
    uint64_t took = now_ns() - began;
    bench_destroy(b, id);
    return took;
}

enum { FLOOR, PEER, RUN, PAIR, LIVE, WAYS };

static uint64_t sample(struct bench *b, unsigned way, const char *live, struct buf *answer) {
    switch (way) {
    case FLOOR:
        return bench_outside(plain);
    case PEER:
        return bench_outside(bwrap);
    case RUN:
        return run_once(b, answer);
    case PAIR:
        return create_and_exec(b, answer);
    default:
        return exec_in(b, live, answer);
    }
}

/* In every round each once, in a new order each time, and each when the spawner has come to rest:
 * what one left behind is not in the next one's time. */
static void sample_all(struct bench *b, bool has_bwrap, struct samples all[WAYS]) {
    struct buf answer DEFER(buf_done) = BUF(1 << 20);
    unsigned rounds = b->quick ? QUICK : ROUNDS, order[WAYS] = {FLOOR, PEER, RUN, PAIR, LIVE};
    char id[BENCH_ID], target[BENCH_TARGET];
    uint64_t seed = 1;
    bench_create(b, id);
    bench_exec_target(id, target);
    for (unsigned i = 0; i < rounds + WARM_UP; i++) {
        shuffle(order, WAYS, &seed);
        for (size_t k = 0; k < WAYS; k++) {
            if (order[k] == PEER && !has_bwrap)
                continue;
            bench_rest(b, 1);
            uint64_t took = sample(b, order[k], target, &answer);
            if (i >= WARM_UP)
                samples_add(&all[order[k]], took);
        }
    }
    bench_destroy(b, id);
}

void measure_latency(struct bench *b, bool slow) {
    struct samples all[WAYS] = {0};
    struct report *r = b->report;
    bool has_bwrap = access(bwrap[0], X_OK) == 0;
    char name[128];
    report_section(r, slow ? "One client, 5 ms added to every sync" : "One client");
    sample_all(b, has_bwrap, all);
    double p50[WAYS];
    for (size_t k = 0; k < WAYS; k++)
        p50[k] = (double)samples_quantile(&all[k], 500);
    report_times(r, "fork+exec of true", &all[FLOOR], NULL);
    if (has_bwrap)
        report_times(r, "bwrap of true", &all[PEER], &all[FLOOR]);
    report_times(r, "POST /v1/run: machine, true, result", &all[RUN], &all[FLOOR]);
    report_times(r, "create, then exec true: two requests", &all[PAIR], &all[FLOOR]);
    report_times(r, "exec true in a live box", &all[LIVE], &all[FLOOR]);
    const struct {
        const char *what;
        double value, limit;
    } bars[] = {
        {"create + exec / fork+exec, p50", p50[PAIR] / p50[FLOOR], 6},
        {"create + exec / bwrap, p50", p50[PAIR] / p50[PEER], 0.6},
        {"exec in a live box / fork+exec, p50", p50[LIVE] / p50[FLOOR], 2},
        {"warm create to first byte / exec in a live box, p50", p50[RUN] / p50[LIVE], 1.3},
    };
    for (size_t i = 0; i < sizeof(bars) / sizeof(*bars); i++) {
        snprintf(name, sizeof(name), "%s%s", bars[i].what, slow ? ", slow disk" : "");
        if (has_bwrap || i != 1)
            report_bar(b->report, name, bars[i].value, bars[i].limit, "x");
    }
    for (size_t k = 0; k < WAYS; k++)
        samples_done(&all[k]);
}
