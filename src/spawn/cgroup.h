/*
 * Control groups of boxes, on cgroup v1, v2 and hybrid hosts.
 *
 * A box has one group per controller with its limits ("work"), and one tree in the freezer (v1) or
 * below its group (v2). Pid 1 is in the root of the tree (v1) or in "guest" (v2); "work" has one
 * child per command. Pid 1 stays outside the memory group, so an out-of-memory kill never hits it.
 * Groups are created in advance with the default limits. On v1 some of them are used again if
 * nothing of the earlier box is left in them (cgroup_kept.c); all others are used once.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/wire/plan.h"

enum cgroup_mode { CGROUP_NONE, CGROUP_V1, CGROUP_V2 };
enum { CGROUP_TASKS = 3, CGROUP_SPARES = 4 };

enum { CGROUP_KEPT_MAX = 16, CGROUP_STATE_SIZE = 1024 };

/* cgroup_kept.c */
struct cgroups_kept {
    struct {
        uint64_t number, since_ms;
    } list[CGROUP_KEPT_MAX]; /* oldest first */
    size_t count;
    char fresh[CGROUP_STATE_SIZE]; /* state of new groups; empty: none can be kept */
    uint64_t reused;               /* number of boxes that got kept groups */
    uint64_t used_up;              /* number of boxes that left something in theirs */
};

/* The cgroup hierarchies of the host. On v1 each controller has its own hierarchy. */
struct cgroups {
    int back; /* v2: cgroup.procs of the spawner's original group, to return to it; or -1 */
    enum cgroup_mode mode;
    /*
     * Carrel's directory in the hierarchy of each controller; -1: none. v2: one directory for all
     */
    int memory, cpu, pids, freezer;
    char name[32]; /* name of those directories */
    uint64_t next; /* number of the cgroups of the next box */
    struct cgroups_kept kept;
    bool has_memsw, has_tcp; /* v1: separate limits for memory plus swap, and for TCP buffers */
};

/* A spare: the cgroup of one future command. The guest uses its descriptors. */
struct cgroup_spare {
    int procs;
    int freeze;
    int kill; /* file cgroup.kill (v2 only, else -1) */
};

/* Files of a box's groups that show its limits and use, in the order in which the guest gets them.
 */
enum { CGROUP_MEMORY_FILES = 3, CGROUP_CPU_FILES = 2 };

/* The cgroups of one box. The descriptors are passed to the guest; -1: the host has no such file.
 */
struct cgroup_set {
    uint64_t number;
    int memory[CGROUP_MEMORY_FILES]; /* limit, use, memory.stat; all or none */
    int cpu[CGROUP_CPU_FILES];       /* limit, use */
    int guest_procs;
    int tasks[CGROUP_TASKS]; /* v1: groups that the guest's worker thread joins */
    struct cgroup_spare spares[CGROUP_SPARES];
    unsigned spare_count;
};

/* Finds the hierarchies below cgroup_root (an open /sys/fs/cgroup) and creates Carrel's groups. */
int cgroups_open(struct cgroups *cg, int cgroup_root, int proc, const char *name, struct err *err);

/* Removes Carrel's own directories, if they are empty. */
void cgroups_close(struct cgroups *cg);

#define CGROUP_SET_NONE   \
    ((struct cgroup_set){ \
        .memory = {-1, -1, -1}, .cpu = {-1, -1}, .guest_procs = -1, .tasks = {-1, -1, -1}})

int cgroup_new(struct cgroups *cg, struct cgroup_set *ret, struct err *err);
int cgroup_add_spare(struct cgroups *cg, uint64_t box, unsigned number, struct cgroup_spare *ret);
/*
 * v1: opens the `tasks` files of the groups with the limits of a box. -1 for those that do not
 * exist, on v2 for all.
 */
int cgroup_open_tasks(struct cgroups *cg, uint64_t box, int ret[CGROUP_TASKS]);
/* Returns the number for the next spare cgroup of an adopted box: a number is used only once. */
unsigned cgroup_next_spare(struct cgroups *cg, uint64_t box);

/* Applies the limits of the plan that differ from the defaults of a new cgroup. */
int cgroup_limit(struct cgroups *cg, uint64_t number, const struct plan *plan, struct err *err);
void cgroup_close(struct cgroup_set *set); /* closes descriptors; the groups stay */

/* Kills all processes in a box's groups and removes the groups; false while processes are dying. */
bool cgroup_remove(struct cgroups *cg, uint64_t number);

/*
 * cgroup_kept.c, v1 only. cgroup_learn() remembers the state of new groups. cgroup_keep() takes the
 * groups of a box whose processes have ended and whose record is removed: a record that names them
 * would end the next box that has them. Returns false if it has no room. cgroup_take_kept() gives
 * them to a new box, if nothing is left in them.
 */
void cgroup_learn(struct cgroups *cg, uint64_t number);
bool cgroup_keep(struct cgroups *cg, uint64_t number);
bool cgroup_take_kept(struct cgroups *cg, uint64_t *ret_number);
void cgroups_drop_kept(struct cgroups *cg);

/*
 * Thaws all groups of a box (v1 only). A frozen process cannot die, and a guest that is killed
 * while it ends a command leaves the group of that command frozen. It has no effect if nothing is
 * frozen.
 */
void cgroup_thaw(struct cgroups *cg, uint64_t number);

/*
 * Freezes or thaws the commands of a box; the guest keeps running. 1: done; 0: some processes still
 * run; -errno. May be repeated.
 */
int cgroup_freeze(struct cgroups *cg, uint64_t number, bool frozen);

/* Visits every process of a box, including pid 1. */
void cgroup_each_pid(struct cgroups *cg, uint64_t number, void (*visit)(int pid, void *arg),
                     void *arg);

/* Calls seen() for the number of every existing cgroup of a box, to clean up after a crash. */
void cgroups_each(struct cgroups *cg, void (*seen)(uint64_t number, void *arg), void *arg);

/* counters.c */
/* Opens the files that show limits and use of a box. A file that cannot be opened stays -1. */
void cgroup_open_counters(struct cgroups *cg, struct cgroup_set *set);
void cgroup_facts(struct cgroups *cg, uint64_t number, struct plan_facts *ret);
/* Fills the fields of *ret that come from cgroups; proc: descriptor of /proc. */
void cgroup_stats(struct cgroups *cg, int proc, uint64_t number, struct plan_stats *ret);
