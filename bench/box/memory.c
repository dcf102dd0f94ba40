/*
 * Memory of an idle box: what 500 of them take from the host, kernel memory included.
 *
 * Measured by a process of its own with a spawner of its own, both in a memory cgroup where the
 * host has that hierarchy, so that the kernel's own account stands beside the host's.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "measures.h"

#define MEMCG "/sys/fs/cgroup/memory"

enum { STEPS = 20, IDLE_US = 1500000 }; /* a guest is idle after a second */

/* What the kernel counts by kind. The rest of the growth is pages that it counts nowhere. */
static const struct {
    const char *key, *name;
} parts[] = {
    {"\nAnonPages:", "pages of the guest and the spawner"},
    {"\nPageTables:", "page tables"},
    {"\nKernelStack:", "stacks of threads in the kernel"},
    {"\nSUnreclaim:", "kernel objects"},
    {"\nSReclaimable:", "kernel objects that can be dropped: inodes, dentries"},
    {"\nPercpu:", "kernel memory of each processor"},
    {"\nShmem:", "files on tmpfs"},
};

enum { PARTS = sizeof(parts) / sizeof(*parts) };

/* KB a box each. */
struct memory {
    double host, step, memcg; /* step: the median of the steps */
    double part[PARTS];
};

struct reading {
    uint64_t used, part[PARTS]; /* bytes */
};

static uint64_t number_at(const char *text, const char *key) {
    const char *at = strstr(text, key);
    return at ? strtoull(at + strlen(key), NULL, 10) * 1024 : 0;
}

static struct reading memory_read(void) {
    char text[4096];
    struct reading now = {0};
    if (read_file_at(AT_FDCWD, "/proc/meminfo", text, sizeof(text)) <= 0)
        return now;
    now.used = number_at(text, "MemTotal:") - number_at(text, "MemAvailable:");
    for (int i = 0; i < PARTS; i++)
        now.part[i] = number_at(text, parts[i].key);
    return now;
}

static uint64_t memcg_used(const char *group) {
    char path[200], text[64];
    snprintf(path, sizeof(path), "%s/memory.usage_in_bytes", group);
    return read_file_at(AT_FDCWD, path, text, sizeof(text)) > 0 ? strtoull(text, NULL, 10) : 0;
}

static int fill(struct world *w, unsigned from, unsigned to, struct err *err) {
    for (unsigned i = from; i < to; i++) {
        struct box box;
        struct frame pong;
        if (box_open(&box, w->link, &(struct box_spec){.linger = true}, err) < 0 ||
            guest_link_call(box.guest, (struct frame_head){.type = MSG_PING}, NULL, &pong, err) < 0)
            return -1;
        box_drop(&box);
    }
    return world_settle(w, to, err);
}

/* Others on this host may give back more than the boxes took. */
static double growth_kb(uint64_t now, uint64_t before, unsigned boxes) {
    return ((double)now - (double)before) / 1024 / boxes;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int measure(struct world *w, unsigned step, const char *group, struct memory *ret,
                   struct err *err) {
    double steps[STEPS];
    if (fill(w, 0, 2, err) < 0) /* what the first ones bring in is not theirs */
        return -1;
    struct reading first = memory_read();
    uint64_t memcg = memcg_used(group), last = first.used;
    for (unsigned i = 0; i < STEPS; i++) {
        if (fill(w, 2 + i * step, 2 + (i + 1) * step, err) < 0)
            return -1;
        uint64_t now = memory_read().used;
        steps[i] = growth_kb(now, last, step);
        last = now;
    }
    usleep(IDLE_US);
    struct reading end = memory_read();
    qsort(steps, STEPS, sizeof(*steps), compare);
    ret->host = growth_kb(end.used, first.used, STEPS * step);
    ret->step = steps[STEPS / 2];
    ret->memcg = growth_kb(memcg_used(group), memcg, STEPS * step);
    for (int i = 0; i < PARTS; i++)
        ret->part[i] = growth_kb(end.part[i], first.part[i], STEPS * step);
    return 0;
}

/* In a child: joins the cgroup before the spawner starts, so that it and its boxes are below it. */
static void measure_apart(struct bench *b, const char *group, int home) {
    struct world w;
    struct memory m = {0};
    struct err err;
    write_file_at(AT_FDCWD, group, "0");
    char *file = strrchr(group, '/');
    *file = '\0';
    int r = world_open(&w, b->build, WORLD_USUAL, &err);
    if (r == 0)
        r = measure(&w, b->quick ? 1 : 25, group, &m, &err);
    if (r < 0)
        fprintf(stderr, "box_bench: memory: %s\n", err.text);
    world_close(&w);
    if (r == 0)
        write_all(home, &m, sizeof(m));
    _exit(r < 0);
}

int measure_memory(struct bench *b, struct err *err) {
    struct memory m;
    char group[128], procs[160];
    int ends[2];
    snprintf(group, sizeof(group), MEMCG "/carrel-bench.%d", (int)getpid());
    snprintf(procs, sizeof(procs), "%s/cgroup.procs", group);
    bool has_memcg = mkdir(group, 0755) == 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, "pipe");
    pid_t pid = fork();
    if (pid == 0)
        measure_apart(b, procs, ends[1]);
    close(ends[1]);
    ssize_t n = read(ends[0], &m, sizeof(m));
    close(ends[0]);
    waitpid(pid, NULL, 0);
    for (int i = 0; has_memcg && rmdir(group) < 0 && i < 100; i++)
        usleep(20000);
    if (n != sizeof(m))
        return err_set(err, ERR_INTERNAL, "memory was not measured");

    report_section(b->report, "Memory of an idle box, upper on tmpfs, kernel memory included");
    report_figure(b->report, "growth of MemTotal-MemAvailable over 500 boxes, each", m.host, "KB");
    report_figure(b->report, "the same, median of 20 steps of 25 boxes, each", m.step, "KB");
    for (int i = 0; i < PARTS; i++) {
        char name[100];
        snprintf(name, sizeof(name), "of it: %s", parts[i].name);
        report_figure(b->report, name, m.part[i], "KB");
    }
    if (has_memcg)
        report_figure(b->report, "growth of the memory cgroup of spawner and boxes, each", m.memcg,
                      "KB");
    else
        report_skip(b->report, "memory cgroup", "no v1 memory hierarchy to put the spawner in");
    report_bar(b->report, "memory of an idle box", m.host, 300, "KB");
    return 0;
}
