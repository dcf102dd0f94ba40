/*
 * A berth: the parts of a box that are slow to create, made in advance and used once.
 *
 * It has a root filesystem with its own id range, cgroups, a network namespace, and a process that
 * has joined them and waits for its plan. It has no user namespace, filter or guest yet. When the
 * spawner dies, the waiting process sees its socket close and exits, and nothing remains.
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
    int socket; /* to the waiting process */
    int pidfd;
    pid_t pid;
    uint64_t born;  /* of process_born(): with the pid, its name for good */
    unsigned stage; /* how far it is made; BERTH_READY at the end */
};

enum { BERTH_READY = 4 };

#define BERTH_NONE                       \
    ((struct berth){.root = ROOTFS_NONE, \
                    .netns = -1,         \
                    .socket = -1,        \
                    .pidfd = -1,         \
                    .cgroup = {.guest_procs = -1, .tasks = {-1, -1, -1}}})

/*
 * What tells a process from all others that had or will have its pid: the number of its pidfd's
 * inode where that is its own (kernel 6.9), else when it began, in the kernel's ticks. 0: not
 * known. proc is an open /proc.
 */
uint64_t process_born(int proc, pid_t pid, int pidfd);

/* One step of making it, so that a request waits for at most one. */
int berth_advance(struct spawner *s, struct berth *b, const struct rootfs_size *size,
                  struct err *err);

/* Ends an unused one and gives everything back. */
void berth_drop(struct spawner *s, struct berth *b);
/* Closes the descriptors of one that became a box. */
void berth_close(struct berth *b);
