/*
 * From a clone of the spawner to pid 1 of a box: the privileged set-up, line by line.
 *
 * Everything it needs was made and opened before the clone; here it is only put in place. Any
 * failure is sent to the box's creator as an ERROR frame on the connection it will hold, and the
 * process ends: there is no half-made box.
 */
#pragma once

#include <linux/filter.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/plan.h"
#include "spawn/cgroup.h"
#include "spawn/rootfs.h"

/* A name in /proc to be covered with the anchor's empty file or directory. */
struct mask {
    const char *name;
    bool is_dir;
};

struct child {
    /* shared by all boxes */
    int anchor_ns;  /* mount namespace with one empty read-only mount */
    int guest;      /* carrel-guest, executable and not readable */
    const struct mask *masks; /* what to hide; ends with a NULL name */
    const struct sock_fprog *filter;
    bool rootless;

    /* this box's own */
    const struct plan *plan;
    const struct rootfs *root;
    const struct cgroup_set *cgroup;
    int grants[PLAN_MAX_GRANTS]; /* mounts, in the plan's order */
    int netns;
    int dev;     /* detached copy of the /dev template */
    int go;      /* readable when the spawner has written the box down; end of file: give up */
    int control; /* the creator's connection to the guest */
    int listener;
    int spawner; /* the spawner's own connection */
    uint64_t shm_bytes;
};

/* Runs in the clone (new pid, ipc and uts namespaces) and never returns. */
void child_main(const struct child *c) __attribute__((noreturn));
