#include "spawn/affinity.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "base/fs/dir.h"
#include "base/log.h"
#include "spawn/cpus.h"
#include "spawn/spawner.h"

enum { ROUNDS = 8 };

/* The CPUs of a box that an earlier spawner made are those of its pid 1. */
static void load_of_boxes(const struct spawner *s, const struct box *but, struct cpu_loads *ret) {
    memset(ret, 0, sizeof(*ret));
    for (struct box *box = s->list; box; box = box->next) {
        if (box == but || box->dead || !box->limits.cpu_milli)
            continue;
        if (CPU_COUNT(&box->cpus) == 0 &&
            sched_getaffinity(box->pid, sizeof(box->cpus), &box->cpus) < 0)
            continue;
        cpu_loads_add(ret, &box->cpus, box->limits.cpu_milli);
    }
}

/* False: the CPUs of this host cannot be chosen, for example because there are too many. */
static bool choose(const struct spawner *s, struct box *box) {
    struct cpu_loads loads;
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
        return false;
    load_of_boxes(s, box, &loads);
    /* Slots are unique on the host, so spawners of other stores do not begin with the same CPU. */
    unsigned from = box->slot % (unsigned)CPU_COUNT(&allowed);
    cpus_choose(&loads, &allowed, box->limits.cpu_milli, from, &box->cpus);
    return true;
}

struct change {
    int proc;
    const cpu_set_t *cpus;
    unsigned changed;
    int error;
};

/* Sets the CPUs of all threads of a process. Threads that end meanwhile are not an error. */
static void set_process(int pid, void *arg) {
    struct change *c = arg;
    char path[32];
    snprintf(path, sizeof(path), "%d/task", pid);
    DIR *d DEFER(dir_close) = dir_list(c->proc, path);
    for (struct dirent *e; d && (e = readdir(d));) {
        pid_t tid = (pid_t)strtol(e->d_name, NULL, 10);
        cpu_set_t has;
        if (tid <= 0 || sched_getaffinity(tid, sizeof(has), &has) < 0 || CPU_EQUAL(&has, c->cpus))
            continue;
        if (sched_setaffinity(tid, sizeof(*c->cpus), c->cpus) == 0)
            c->changed++;
        else if (errno != ESRCH)
            c->error = errno;
    }
}

static void report(const struct box *box, const struct change *c) {
    if (c->error)
        log_line(LOG_WARN, "spawn", "set the CPUs of machine '%s': %s", box->id,
                 strerror(c->error));
}

/* A new box has no processes but pid 1, all of whose threads have the CPUs of the first. */
void affinity_begin(struct spawner *s, struct box *box) {
    cpu_set_t has;
    if (!box->limits.cpu_milli || !choose(s, box))
        return;
    if (sched_getaffinity(box->pid, sizeof(has), &has) == 0 && CPU_EQUAL(&has, &box->cpus))
        return;
    struct change c = {s->proc, &box->cpus, 0, 0};
    set_process(box->pid, &c);
    report(box, &c);
}

void affinity_change(struct spawner *s, struct box *box) {
    if (!choose(s, box))
        return;
    struct change c = {s->proc, &box->cpus, 1, 0};
    /* A process that forks meanwhile passes its old CPUs on, so look again until none is left. */
    for (int i = 0; i < ROUNDS && c.changed && !c.error; i++) {
        c.changed = 0;
        cgroup_each_pid(&s->cgroups, box->cgroup, set_process, &c);
    }
    report(box, &c);
}
