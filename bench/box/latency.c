/*
 * Start times. In every round each contender runs once, in a new order each time, and each waits
 * first until the spawner has come to rest: noise and background work hit all alike.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/settle.h"
#include "measures.h"

static const char *const echo[] = {"/bin/echo", "x", NULL};
static const char *const true_[] = {"/bin/true", NULL};

enum { CONTENDER_MAX = 24 };
#define ROUNDS_NS 200000000000ull /* on a busy host fewer rounds must do */

struct latency {
    struct bench *bench;
    struct world bare; /* where no box is ready */
    struct box kept;   /* the box that commands are run in, there */
    uint32_t exec_id;
};

struct contender {
    char name[64];
    unsigned every;
    const char *const *argv;
    int (*sample)(struct latency *l, const struct contender *c, struct moments *ret,
                  struct err *err);
    struct samples first, end;
};

static int sample_outside(struct latency *l, const struct contender *c, struct moments *ret,
                          struct err *err) {
    (void)l;
    return outside_exec(c->argv, ret, err);
}

static int create_in(const struct world *w, const struct contender *c, struct moments *ret,
                     struct err *err) {
    struct box b;
    int link = w->link;
    uint64_t start = now_ns();
    if (box_open(&b, link, &(struct box_spec){0}, err) < 0)
        return -1;
    int r = box_exec(&b, 1, c->argv, start, ret, err);
    if (box_destroy(&b, link, err) < 0)
        return -1;
    ret->end_ns = now_ns() - start;
    return r;
}

static int sample_create(struct latency *l, const struct contender *c, struct moments *ret,
                         struct err *err) {
    return create_in(&l->bare, c, ret, err);
}

static int sample_ready(struct latency *l, const struct contender *c, struct moments *ret,
                        struct err *err) {
    return create_in(&l->bench->world, c, ret, err);
}

static int sample_exec(struct latency *l, const struct contender *c, struct moments *ret,
                       struct err *err) {
    return box_exec(&l->kept, ++l->exec_id, c->argv, now_ns(), ret, err);
}

struct field {
    struct contender all[CONTENDER_MAX];
    size_t n;
};

static struct contender *enter(struct field *f, const char *name, const char *const *argv,
                               int (*sample)(struct latency *, const struct contender *,
                                             struct moments *, struct err *)) {
    struct contender *c = &f->all[f->n++];
    *c = (struct contender){.every = 1, .argv = argv, .sample = sample};
    snprintf(c->name, sizeof(c->name), "%s", name);
    return c;
}

static void enter_peer(struct field *f, const struct peer *peer, const char *what,
                       const char *const *argv) {
    char name[64];
    snprintf(name, sizeof(name), "%s: %s", peer->name, what);
    enter(f, name, argv, sample_outside)->every = peer->every;
}

static int run_round(struct latency *l, struct field *f, unsigned round, const unsigned *order,
                     struct err *err) {
    for (size_t i = 0; i < f->n; i++) {
        struct contender *c = &f->all[order[i]];
        struct moments m;
        if (round % c->every)
            continue;
        if (world_settle(&l->bench->world, 0, err) < 0 || world_settle(&l->bare, 1, err) < 0)
            return -1;
        if (c->sample(l, c, &m, err) < 0)
            return err_wrap(err, "%s", c->name);
        samples_add(&c->first, m.first_ns);
        samples_add(&c->end, m.end_ns);
    }
    return 0;
}

static int run_rounds(struct latency *l, struct field *f, unsigned rounds, struct err *err) {
    unsigned order[CONTENDER_MAX];
    uint64_t seed = 1, end = now_ns() + ROUNDS_NS;
    for (unsigned i = 0; i < f->n; i++)
        order[i] = i;
    for (unsigned round = 0; round < rounds && now_ns() < end; round++) {
        shuffle(order, f->n, &seed);
        if (run_round(l, f, round, order, err) < 0)
            return -1;
    }
    return 0;
}

static double ratio(struct samples *a, struct samples *b, unsigned per_mille) {
    uint64_t base = samples_quantile(b, per_mille);
    return base ? (double)samples_quantile(a, per_mille) / (double)base : 0;
}

/* p99 may be twice the floor's in the same run, or four times the own median. */
static void bar_p99(struct bench *b, const char *what, struct samples *s, struct samples *floor) {
    char name[100];
    double limit = 2 * (double)samples_quantile(floor, 990),
           own = 4 * (double)samples_quantile(s, 500);
    snprintf(name, sizeof(name), "p99 of %s", what);
    report_bar(b->report, name, (double)samples_quantile(s, 990) / 1e3,
               (own > limit ? own : limit) / 1e3, "us");
}

static void show(struct bench *b, struct contender *c, struct samples *s, struct samples *floor) {
    report_times(b->report, c->name, s, floor);
}

struct lineup {
    struct field field;
    struct contender *floor_echo, *floor_true, *create_echo, *create_true, *ready_echo, *run,
        *bwrap, *exec, *run_echo;
    const char *run_argv[5], *run_echo_argv[6];
    size_t peers; /* index of the first one */
};

static void line_up(struct bench *b, struct lineup *l) {
    struct field *f = &l->field;
    const char *run[] = {b->world.carrel, "run", "--", "/bin/true", NULL};
    const char *run_echo[] = {b->world.carrel, "run", "--", "/bin/echo", "x", NULL};
    memcpy(l->run_argv, run, sizeof(run));
    memcpy(l->run_echo_argv, run_echo, sizeof(run_echo));
    l->floor_echo = enter(f, "floor: fork+exec /bin/echo", echo, sample_outside);
    l->floor_true = enter(f, "floor: fork+exec /bin/true", true_, sample_outside);
    l->create_echo = enter(f, "box: create, /bin/echo", echo, sample_create);
    l->create_true = enter(f, "box: create, /bin/true, destroy", true_, sample_create);
    l->ready_echo = enter(f, "box: a ready one, /bin/echo", echo, sample_ready);
    l->exec = enter(f, "box: exec /bin/echo in a running one", echo, sample_exec);
    l->run_echo = enter(f, "carrel run -- /bin/echo", l->run_echo_argv, sample_outside);
    l->run = enter(f, "carrel run -- /bin/true", l->run_argv, sample_outside);
    l->peers = f->n;
    for (size_t i = 0; i < PEER_MAX; i++) {
        const struct peer *peer = &b->peers.all[i];
        if (peer->why_not[0])
            continue;
        enter_peer(f, peer, "/bin/echo", peer->echo);
        enter_peer(f, peer, "/bin/true", peer->true_);
        if (strcmp(peer->name, "bwrap") == 0)
            l->bwrap = &f->all[f->n - 1];
    }
}

static void report_lineup(struct bench *b, struct lineup *l) {
    report_section(b->report, "Start to first byte of a dynamic /bin/echo");
    show(b, l->floor_echo, &l->floor_echo->first, NULL);
    show(b, l->create_echo, &l->create_echo->first, &l->floor_echo->first);
    show(b, l->ready_echo, &l->ready_echo->first, &l->floor_echo->first);
    show(b, l->exec, &l->exec->first, &l->floor_echo->first);
    show(b, l->run_echo, &l->run_echo->first, &l->floor_echo->first);
    for (size_t i = l->peers; i < l->field.n; i += 2)
        show(b, &l->field.all[i], &l->field.all[i].first, &l->floor_echo->first);

    report_section(b->report,
                   "Start to end of /bin/true (the whole process; a box: until nothing is left)");
    show(b, l->floor_true, &l->floor_true->end, NULL);
    show(b, l->create_true, &l->create_true->end, &l->floor_true->end);
    show(b, l->run, &l->run->end, &l->floor_true->end);
    for (size_t i = l->peers; i < l->field.n; i += 2)
        show(b, &l->field.all[i + 1], &l->field.all[i + 1].end, &l->floor_true->end);

    report_section(b->report, "A command in a running box, to its end");
    show(b, l->floor_echo, &l->floor_echo->end, NULL);
    show(b, l->exec, &l->exec->end, &l->floor_echo->end);
}

static void bar_lineup(struct bench *b, struct lineup *l) {
    struct samples *floor = &l->floor_echo->first;
    report_bar(b->report, "create to first byte / fork+exec, p50",
               ratio(&l->create_echo->first, floor, 500), 3.5, "x");
    if (l->bwrap)
        report_bar(b->report, "whole carrel run / bwrap, p50",
                   ratio(&l->run->end, &l->bwrap->end, 500), 0.45, "x");
    report_bar(b->report, "exec in a running box / fork+exec, p50",
               ratio(&l->exec->end, &l->floor_echo->end, 500), 1.15, "x");
    bar_p99(b, "create to first byte", &l->create_echo->first, floor);
    bar_p99(b, "whole carrel run", &l->run->end, &l->floor_true->end);
    bar_p99(b, "exec in a running box", &l->exec->end, &l->floor_echo->end);
}

static void lineup_done(struct lineup *l) {
    for (size_t i = 0; i < l->field.n; i++) {
        samples_done(&l->field.all[i].first);
        samples_done(&l->field.all[i].end);
    }
}

int measure_latency(struct bench *b, struct err *err) {
    struct latency l = {.bench = b};
    struct lineup *up = calloc(1, sizeof(*up));
    if (!up)
        abort();
    line_up(b, up);
    int r = world_open(&l.bare, b->build, WORLD_BARE, err);
    if (r == 0)
        r = box_open(&l.kept, l.bare.link, &(struct box_spec){0}, err);
    if (r == 0)
        r = run_rounds(&l, &up->field, b->quick ? 3 : 1000, err);
    if (r == 0)
        r = box_destroy(&l.kept, l.bare.link, err);
    world_close(&l.bare);
    report_lineup(b, up);
    bar_lineup(b, up);
    lineup_done(up);
    free(up);
    return r;
}
