/*
 * A berth: the parts of a box that are slow to create, made in advance and used once.
 *
 * A berth has a root filesystem with its own id range, cgroups, a network namespace, and a process
 * that has joined them and waits for its plan (the settings of the machine). The process has no
 * user namespace or seccomp filter yet, and does not run the guest program yet. When the spawner
 * dies, the process sees its socket close and exits, and nothing remains.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/wire/plan.h"
#include "spawn/cgroup.h"
#include "spawn/disk/rootfs.h"

struct spawner;

struct berth {
    struct rootfs root;
    struct cgroup_set cgroup;
    int netns;
    int socket; /* connection to the waiting process */
    int pidfd;
    pid_t pid;
    uint64_t born;  /* process_born(): unique together with the pid */
    unsigned stage; /* number of finished steps; BERTH_READY: all */
};

enum { BERTH_ROOT = 1, BERTH_READY = 4 }; /* BERTH_ROOT: the next step makes the root */

#define BERTH_NONE   \
    ((struct berth){ \
        .root = ROOTFS_NONE, .netns = -1, .socket = -1, .pidfd = -1, .cgroup = CGROUP_SET_NONE})

/*
 * Returns a number that tells a process from earlier and later processes with the same pid: the
 * inode of its pidfd, if unique (kernel 6.9), else its start time in ticks. 0: unknown. proc:
 * descriptor of /proc.
 */
uint64_t process_born(int proc, pid_t pid, int pidfd);

/* Returns the start time of a process, in ticks of the boot clock; 0: unknown. */
uint64_t process_began(int proc, pid_t pid);

/* Does one step of creating the berth, so that a request waits for at most one step. */
int berth_advance(struct spawner *s, struct berth *b, const struct rootfs_size *size,
                  struct err *err);

/* Kills the process of an unused berth and frees its resources. */
void berth_drop(struct spawner *s, struct berth *b);
/* Closes the descriptors of a berth that became a box. */
void berth_close(struct berth *b);
