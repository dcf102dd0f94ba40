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

/*
 * Processor time of the whole host since it started, in nanoseconds: what is neither idle nor taken
 * by the hypervisor. So work that the kernel does behind everybody's back counts too.
 */
static uint64_t host_busy_ns(uint64_t at_ns) {
    char text[512] = "";
    unsigned long long idle = 0, iowait = 0, steal = 0;
    read_file_at(AT_FDCWD, "/proc/stat", text, sizeof(text));
    sscanf(text, "cpu %*u %*u %*u %llu %llu %*u %*u %llu", &idle, &iowait, &steal);
    uint64_t tick_ns = 1000000000u / (uint64_t)sysconf(_SC_CLK_TCK);
    return at_ns * (uint64_t)sysconf(_SC_NPROCESSORS_ONLN) - (idle + iowait + steal) * tick_ns;
}

struct span {
    double rate;    /* runs a second */
    double busy_ns; /* processor time of the host for each run */
};

static int measure_span(const struct bench *b, once_fn *once, unsigned workers, uint64_t span_ns,
                        struct span *ret, struct err *err) {
    int ends[2];
    uint64_t total = 0, count, start = now_ns(), busy = host_busy_ns(start);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, "make a pipe");
    for (unsigned i = 0; i < workers; i++)
        if (fork() == 0)
            work(b, once, start + span_ns, ends[1]);
    close(ends[1]);
    while (read(ends[0], &count, sizeof(count)) == sizeof(count))
        total += count;
    close(ends[0]);
    /* Boxes end behind their creators; the clock stops when nothing of them is left. */
    if (world_settle(&b->world, 0, err) < 0)
        return -1;
    if (!total)
        return err_set(err, ERR_INTERNAL, "nothing was run");
    uint64_t end = now_ns();
    *ret = (struct span){.rate = (double)total / ((double)(end - start) / 1e9),
                         .busy_ns = (double)(host_busy_ns(end) - busy) / (double)total};
    return 0;
}

enum { WAY_FLOOR, WAY_BOX, WAY_RUN, WAY_BWRAP, WAYS, WORKERS = 2 };

static const struct way {
    const char *name;
    once_fn *once;
    bool needs_bwrap;
} ways[] = {
    [WAY_FLOOR] = {"floor: fork+exec", once_floor, false},
    [WAY_BOX] = {"box through the library", once_box, false},
    [WAY_RUN] = {"carrel run", once_run, false},
    [WAY_BWRAP] = {"bwrap", once_bwrap, true},
};

static bool possible(const struct bench *b, const struct way *way) {
    return !way->needs_bwrap || peers_find(&b->peers, "bwrap");
}

struct rates {
    struct samples rate[WAYS][WORKERS], busy[WAYS][WORKERS];
    struct samples cpu_ratio, time_ratio; /* carrel run / bwrap, two workers, by round */
};

/* One short span for each way and number of workers. */
static int rate_round(struct bench *b, struct rates *r, struct err *err) {
    struct span spans[WAYS][WORKERS];
    for (unsigned i = 0; i < WAYS * WORKERS; i++) {
        const struct way *way = &ways[i / WORKERS];
        struct span *span = &spans[i / WORKERS][i % WORKERS];
        if (!possible(b, way))
            continue;
        if (measure_span(b, way->once, 1 + i % WORKERS, b->quick ? 50000000 : 1000000000, span,
                         err) < 0)
            return -1;
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        samples_add(&r->rate[i / WORKERS][i % WORKERS], (uint64_t)(span->rate * 1000));
        samples_add(&r->busy[i / WORKERS][i % WORKERS], (uint64_t)span->busy_ns);
    }
    if (!possible(b, &ways[WAY_BWRAP]))
        return 0;
    const struct span *run = &spans[WAY_RUN][WORKERS - 1], *peer = &spans[WAY_BWRAP][WORKERS - 1];
    samples_add(&r->cpu_ratio, (uint64_t)(run->busy_ns / peer->busy_ns * 1000));
    samples_add(&r->time_ratio, (uint64_t)(peer->rate / run->rate * 1000));
    return 0;
}

static void report_rows(struct bench *b, struct samples of[WAYS][WORKERS], const char *title,
                        const char *unit) {
    report_section(b->report, title);
    for (unsigned i = 0; i < WAYS * WORKERS; i++) {
        struct samples *s = &of[i / WORKERS][i % WORKERS];
        char name[80];
        if (!possible(b, &ways[i / WORKERS]))
            continue;
        snprintf(name, sizeof(name), "%s, %u worker%s", ways[i / WORKERS].name, 1 + i % WORKERS,
                 i % WORKERS ? "s" : "");
        report_figure(b->report, name, (double)samples_quantile(s, 500) / 1e3, unit);
        samples_done(s);
    }
}

static int per_second(struct bench *b, struct err *err) {
    struct rates r = {0};
    for (int round = 0; round < (b->quick ? 1 : 5); round++)
        if (rate_round(b, &r, err) < 0)
            return -1;
    report_rows(b, r.rate, "/bin/true a second, with 1 and 2 workers, until nothing is left", "/s");
    report_rows(b, r.busy, "The same: processor time of the whole host for each run", "us");
    if (possible(b, &ways[WAY_BWRAP])) {
        report_bar(b->report, "carrel run / bwrap, processor time, 2 workers, medians of rounds",
                   (double)samples_quantile(&r.cpu_ratio, 500) / 1e3, 0.85, "x");
        report_bar(b->report, "carrel run / bwrap, time for each run, 2 workers",
                   (double)samples_quantile(&r.time_ratio, 500) / 1e3, 1 / 1.2, "x");
    }
    samples_done(&r.cpu_ratio);
    samples_done(&r.time_ratio);
    return 0;
}

int measure_rate(struct bench *b, struct err *err) {
    if (back_to_back(b, b->quick ? 5 : 2000, err) < 0)
        return err_wrap(err, "back to back");
    return per_second(b, err);
}
