/* 1,000 boxes alive at once: does the last one cost what the first did, and how do they all end? */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "io/spawn_link.h"
#include "measures.h"

static const char *const echo[] = {"/bin/echo", "x", NULL};
static const char *const sleeper[] = {"/bin/sleep", "1000", NULL};

enum { BOX_BYTES = 1 << 20 };

struct crowd {
    unsigned size, edge; /* boxes, and how many at each end are compared */
    struct samples first, last, growth, kill_boxes, clean_boxes, kill_sleepers, kill_ratio;
};

static void drop_all(struct box *boxes, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        box_drop(&boxes[i]);
}

/*
 * A virtual machine gets its memory when it first touches it: 10 us a page on the host where this
 * was written, which the last boxes would pay and the first, on memory used before, would not. So
 * the memory is touched here beforehand and given back box by box.
 */
static char *touch_memory(const struct crowd *c) {
    char *p = mmap(NULL, (size_t)c->size * BOX_BYTES, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Created back to back: what it costs to refill the pools is in the figure. */
static int gather(struct crowd *c, int link, struct box *boxes, unsigned *made, struct err *err) {
    struct samples head = {0}, tail = {0};
    struct moments m;
    char *memory = touch_memory(c);
    for (unsigned i = 0; i < c->size; i++) {
        if (memory)
            munmap(memory + (size_t)i * BOX_BYTES, BOX_BYTES);
        uint64_t start = now_ns();
        if (box_open(&boxes[i], link, &(struct box_spec){0}, err) < 0)
            return -1;
        *made = i + 1;
        if (box_exec(&boxes[i], 1, echo, start, &m, err) < 0)
            return -1;
        if (i < c->edge) {
            samples_add(&head, m.first_ns);
            samples_add(&c->first, m.first_ns);
        }
        if (i >= c->size - c->edge) {
            samples_add(&tail, m.first_ns);
            samples_add(&c->last, m.first_ns);
        }
    }
    samples_add(&c->growth, samples_quantile(&tail, 500) * 1000 / samples_quantile(&head, 500));
    samples_done(&head);
    samples_done(&tail);
    return 0;
}

/* Boxes end with their creator's connection: closing it is one order to end them all. */
static int end_boxes(struct bench *b, struct crowd *c, struct err *err) {
    struct box *boxes DEFER_FREE = calloc(c->size, sizeof(*boxes));
    unsigned made = 0;
    int link = spawn_connect(&b->world.place, NULL, err);
    if (!boxes || link < 0)
        return -1;
    int r = gather(c, link, boxes, &made, err);
    uint64_t start = now_ns();
    close(link);
    if (r == 0)
        r = world_reaped(&b->world, err);
    samples_add(&c->kill_boxes, now_ns() - start);
    if (r == 0)
        r = world_empty(&b->world, err);
    samples_add(&c->clean_boxes, now_ns() - start);
    drop_all(boxes, made);
    return r;
}

static int end_sleepers(struct crowd *c, struct err *err) {
    pid_t *pids DEFER_FREE = calloc(c->size, sizeof(*pids));
    unsigned n = 0;
    while (pids && n < c->size && (pids[n] = outside_start(sleeper, NULL)) > 0)
        n++;
    usleep(300000); /* all have become sleepers */
    uint64_t start = now_ns();
    for (unsigned i = 0; i < n; i++)
        kill(pids[i], SIGKILL);
    for (unsigned i = 0; i < n; i++)
        waitpid(pids[i], NULL, 0);
    samples_add(&c->kill_sleepers, now_ns() - start);
    return n == c->size ? 0 : err_sys(err, "start sleeper %u", n);
}

static int one_round(struct bench *b, struct crowd *c, struct err *err) {
    if (world_settle(&b->world, 0, err) < 0 || end_sleepers(c, err) < 0 || end_boxes(b, c, err) < 0)
        return -1;
    samples_add(&c->kill_ratio, c->kill_boxes.v[c->kill_boxes.n - 1] * 1000 /
                                    c->kill_sleepers.v[c->kill_sleepers.n - 1]);
    return 0;
}

static void report_crowd(struct bench *b, struct crowd *c) {
    char name[100];
    report_section(b->report, "Many live boxes, refill included, /bin/echo to first byte");
    snprintf(name, sizeof(name), "box: create, the first %u", c->edge);
    report_times(b->report, name, &c->first, NULL);
    snprintf(name, sizeof(name), "box: create, the last %u of %u alive", c->edge, c->size);
    report_times(b->report, name, &c->last, &c->first);
    snprintf(name, sizeof(name), "kill and reap %u plain sleepers", c->size);
    report_times(b->report, name, &c->kill_sleepers, NULL);
    snprintf(name, sizeof(name), "kill and reap %u boxes", c->size);
    report_times(b->report, name, &c->kill_boxes, &c->kill_sleepers);
    snprintf(name, sizeof(name), "the same, until nothing is left of them");
    report_times(b->report, name, &c->clean_boxes, &c->kill_sleepers);
    report_bar(b->report, "creation at box 1,000 / at box 1, medians of 100",
               (double)samples_quantile(&c->growth, 500) / 1e3, 1.3, "x");
    report_bar(b->report, "kill and reap of 1,000 boxes / of 1,000 sleepers",
               (double)samples_quantile(&c->kill_ratio, 500) / 1e3, 2, "x");
}

int measure_crowd(struct bench *b, struct err *err) {
    struct crowd c = {.size = b->quick ? 10 : 1000, .edge = b->quick ? 3 : 100};
    int r = 0;
    for (int round = 0; r == 0 && round < (b->quick ? 1 : 3); round++)
        r = one_round(b, &c, err);
    if (r == 0)
        report_crowd(b, &c);
    struct samples *all[] = {&c.first,       &c.last,          &c.growth,    &c.kill_boxes,
                             &c.clean_boxes, &c.kill_sleepers, &c.kill_ratio};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        samples_done(all[i]);
    return r;
}
