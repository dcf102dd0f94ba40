/*
 * Turns a clone of the spawner into pid 1 of a box: the privileged set-up.
 *
 * The process joins what its berth holds and waits for its plan; then it moves the prepared mounts
 * and descriptors into place. On failure it sends an ERROR frame to the creator of the box and
 * exits: no half-made box remains.
 */
#pragma once

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/wire/plan.h"
#include "spawn/cgroup.h"
#include "spawn/disk/rootfs.h"

/* A name in /proc to cover with an empty file or directory of the anchor. */
struct mask {
    const char *name;
    bool is_dir;
};

struct child {
    int anchor_ns;            /* mount namespace with one empty read-only mount */
    int guest;                /* carrel-guest, executable and not readable */
    const struct mask *masks; /* what to hide; ends with a NULL name */
    const struct sock_fprog *filter;
    const struct rootfs *root;
    const struct cgroup_set *cgroup;
    int netns;
    int dev;    /* detached copy of the /dev template */
    int orders; /* receives the plan with its descriptors, then the permission to start */
};

/*
 * Descriptors that come with the plan, in this order. The grants follow, and then, if the berth's
 * own overlays do not fit, those of root and /usr and the disks below them.
 */
enum { ORDER_CONTROL, ORDER_LISTENER, ORDER_ADMIN, ORDER_SPAWNER, ORDER_GRANTS };

/* Only the used part of a plan is sent. */
static inline size_t child_order_size(const struct plan *plan) {
    return sizeof(*plan) - (PLAN_MAX_GRANTS - plan->grant_count) * sizeof(plan->grants[0]);
}

/* Runs in the clone (new pid, ipc and uts namespaces) and never returns. */
void child_main(const struct child *c) __attribute__((noreturn));
