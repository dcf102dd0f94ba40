/* Many boxes one after the other: what the pools cost to refill is in these figures. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "io/spawn_link.h"
#include "measures.h"

static const char *const echo[] = {"/bin/echo", "x", NULL};
static const char *const true_[] = {"/bin/true", NULL};

static int back_to_back(struct bench *b, unsigned count, struct err *err) {
    struct samples first = {0}, floor = {0};
    uint64_t boxes_ns = 0;
    for (unsigned i = 0; i < count; i++) {
        struct box box;
        struct moments m;
        uint64_t start = now_ns();
        if (box_open(&box, b->world.link, &(struct box_spec){0}, err) < 0 ||
            box_exec(&box, 1, echo, start, &m, err) < 0)
            return -1;
        box_drop(&box);
        boxes_ns += now_ns() - start;
        samples_add(&first, m.first_ns);
        if (outside_exec(echo, &m, err) < 0)
            return -1;
        samples_add(&floor, m.first_ns);
    }
    uint64_t start = now_ns();
    if (world_settle(&b->world, 0, err) < 0)
        return -1;
    boxes_ns += now_ns() - start;
    report_section(b->report,
                   "Created back to back, refill and removal included, /bin/echo to first byte");
    report_times(b->report, "floor: fork+exec, between them", &floor, NULL);
    report_times(b->report, "box: create", &first, &floor);
    report_figure(b->report, "until nothing is left, each", (double)boxes_ns / count / 1e3, "us");
    samples_done(&first);
    samples_done(&floor);
    return 0;
}

/* One way to run /bin/true in something; the worker's own connection is given. */
typedef int once_fn(const struct bench *b, int link, struct err *err);

static int once_floor(const struct bench *b, int link, struct err *err) {
    struct moments m;
    (void)b, (void)link;
    return outside_exec(true_, &m, err);
}

static int once_bwrap(const struct bench *b, int link, struct err *err) {
    struct moments m;
    (void)link;
    return outside_exec(peers_find(&b->peers, "bwrap")->true_, &m, err);
}

static int once_run(const struct bench *b, int link, struct err *err) {
    const char *argv[] = {b->world.carrel, "run", "--", "/bin/true", NULL};
    struct moments m;
    (void)link;
    return outside_exec(argv, &m, err);
}

static int once_box(const struct bench *b, int link, struct err *err) {
    struct box box;
    struct moments m;
    (void)b;
    if (box_open(&box, link, &(struct box_spec){0}, err) < 0)
        return -1;
    int r = box_exec(&box, 1, true_, 0, &m, err);
    box_drop(&box);
    return r;
}

/* Counts until the time is up and sends the count home. */
static void work(const struct bench *b, once_fn *once, uint64_t end_ns, int home) {
    struct err err = {0};
    uint64_t count = 0;
    int link = spawn_connect(&b->world.place, NULL, &err);
    while (link >= 0 && now_ns() < end_ns) {
        if (once(b, link, &err) < 0)
            break;
        count++;
    }
    if (err.text[0])
        fprintf(stderr, "box_bench: worker: %s\n", err.text);
    write_all(home, &count, sizeof(count));
    _exit(0);
}

static double rate_of(const struct bench *b, once_fn *once, unsigned workers, uint64_t span_ns,
                      struct err *err) {
    int ends[2];
    uint64_t total = 0, count, start = now_ns();
    if (pipe2(ends, O_CLOEXEC) < 0)
        return 0;
    for (unsigned i = 0; i < workers; i++)
        if (fork() == 0)
            work(b, once, start + span_ns, ends[1]);
    close(ends[1]);
    while (read(ends[0], &count, sizeof(count)) == sizeof(count))
        total += count;
    close(ends[0]);
    /* Boxes end behind their creators; the clock stops when nothing of them is left. */
    if (world_settle(&b->world, 0, err) < 0)
        return 0;
    return (double)total / ((double)(now_ns() - start) / 1e9);
}

static const struct way {
    const char *name;
    once_fn *once;
    bool needs_bwrap;
} ways[] = {
    {"floor: fork+exec", once_floor, false},
    {"box through the library", once_box, false},
    {"carrel run", once_run, false},
    {"bwrap", once_bwrap, true},
};

enum { WAYS = sizeof(ways) / sizeof(*ways), WORKERS = 2 };

static bool possible(const struct bench *b, const struct way *way) {
    return !way->needs_bwrap || peers_find(&b->peers, "bwrap");
}

/* One short span for each way and number of workers. */
static int rate_round(struct bench *b, struct samples rates[WAYS][WORKERS], struct err *err) {
    for (unsigned i = 0; i < WAYS * WORKERS; i++) {
        const struct way *way = &ways[i / WORKERS];
        if (!possible(b, way))
            continue;
        double rate = rate_of(b, way->once, 1 + i % WORKERS, b->quick ? 50000000 : 1000000000, err);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (rate <= 0)
            return -1;
        samples_add(&rates[i / WORKERS][i % WORKERS], (uint64_t)(rate * 1000));
    }
    return 0;
}

static int per_second(struct bench *b, struct err *err) {
    struct samples rates[WAYS][WORKERS] = {0};
    for (int round = 0; round < (b->quick ? 1 : 5); round++)
        if (rate_round(b, rates, err) < 0)
            return -1;
    report_section(b->report, "/bin/true a second, with 1 and 2 workers, until nothing is left");
    for (unsigned i = 0; i < WAYS * WORKERS; i++) {
        struct samples *s = &rates[i / WORKERS][i % WORKERS];
        char name[80];
        if (!possible(b, &ways[i / WORKERS]))
            continue;
        snprintf(name, sizeof(name), "%s, %u worker%s", ways[i / WORKERS].name, 1 + i % WORKERS,
                 i % WORKERS ? "s" : "");
        report_figure(b->report, name, (double)samples_quantile(s, 500) / 1e3, "/s");
        samples_done(s);
    }
    return 0;
}

int measure_rate(struct bench *b, struct err *err) {
    if (back_to_back(b, b->quick ? 5 : 2000, err) < 0)
        return err_wrap(err, "back to back");
    return per_second(b, err);
}
