/*
 * Control groups of boxes, on cgroup v1, v2 and hybrid hosts.
 *
 * A box has one group per controller with its limits ("work"), and one tree in the freezer (v1) or
 * below its group (v2). Pid 1 is in the root of the tree (v1) or in "guest" (v2); "work" has one
 * child per command. Pid 1 stays outside the memory group, so an out-of-memory kill never hits it.
 * Groups are created in advance with the default limits, used once and removed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/wire/plan.h"

enum cgroup_mode { CGROUP_NONE, CGROUP_V1, CGROUP_V2 };
enum { CGROUP_TASKS = 3, CGROUP_SPARES = 4 };

/* What a host can limit. On v1 each controller is a hierarchy of its own. */
struct cgroups {
    int back; /* v2: cgroup.procs of where we came from, to return to; or -1 */
    enum cgroup_mode mode;
    int memory, cpu, pids, freezer; /* our base directory in each; -1: not available. v2: all one */
    char name[32];                  /* of those directories */
    uint64_t next;                  /* number of the next group */
    bool has_memsw, has_tcp;        /* v1: memory and swap, and TCP buffers, are limits apart */
};

/* One command's own group, as the guest uses it. */
struct cgroup_spare {
    int procs;
    int freeze;
    int kill; /* v2 only, else -1 */
};

/* The groups of one box. Descriptors travel to the guest; the name stays. */
struct cgroup_set {
    uint64_t number;
    int guest_procs;
    int tasks[CGROUP_TASKS]; /* v1: what the guest's worker thread joins */
    struct cgroup_spare spares[CGROUP_SPARES];
    unsigned spare_count;
};

/* Finds the host's hierarchies below cgroup_root (an open /sys/fs/cgroup) and makes ours. */
int cgroups_open(struct cgroups *cg, int cgroup_root, int proc, const char *name, struct err *err);

/* Removes our own directories, if empty. */
void cgroups_close(struct cgroups *cg);

int cgroup_new(struct cgroups *cg, struct cgroup_set *ret, struct err *err);
int cgroup_add_spare(struct cgroups *cg, uint64_t box, unsigned number, struct cgroup_spare *ret);
/* The lowest number above all that exist, for a box that was found: each is handed out once. */
unsigned cgroup_next_spare(struct cgroups *cg, uint64_t box);

/* Applies the limits that differ from the defaults a new group carries. */
int cgroup_limit(struct cgroups *cg, uint64_t number, const struct plan *plan, struct err *err);
void cgroup_close(struct cgroup_set *set); /* the descriptors, not the groups */

/* Kills whatever is left in a box's groups, then removes them; false while something is dying. */
bool cgroup_remove(struct cgroups *cg, uint64_t number);

/*
 * v1: a frozen process cannot die, and a guest that is killed while it ends a command leaves that
 * command's group frozen. Harmless where nothing is frozen.
 */
void cgroup_thaw(struct cgroups *cg, uint64_t number);

/*
 * Stops what the box's commands run, or lets it go on; the guest itself goes on in either case.
 * 1: it is so now, 0: not everything has stopped yet, -errno. Asking again does no harm.
 */
int cgroup_freeze(struct cgroups *cg, uint64_t number, bool frozen);

/* Every process of a box, pid 1 too. */
void cgroup_each_pid(struct cgroups *cg, uint64_t number, void (*visit)(int pid, void *arg),
                     void *arg);

/* Every group number that exists, for cleaning up after a crash. */
void cgroups_each(struct cgroups *cg, void (*seen)(uint64_t number, void *arg), void *arg);

/* counters.c */
void cgroup_facts(struct cgroups *cg, uint64_t number, struct plan_facts *ret);
/* All but what is not about cgroups; proc is an open /proc. */
void cgroup_stats(struct cgroups *cg, int proc, uint64_t number, struct plan_stats *ret);
