/*
 * Turns a cloned process of the spawner into pid 1 of a box: the privileged part of the set-up.
 *
 * The process joins the network namespace and cgroup of its berth and waits for its plan. Then it
 * moves the prepared mounts and descriptors into place. On failure it sends an ERROR frame to the
 * creator of the box and exits: no half-made box remains.
 */
#pragma once

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/wire/plan.h"
#include "spawn/cgroup.h"
#include "spawn/disk/rootfs.h"

/* A name in /proc to cover with an empty file or directory of the anchor (see anchor_ns). */
struct mask {
    const char *name;
    bool is_dir;
};

struct child {
    int anchor_ns; /* the anchor: a mount namespace with one empty read-only mount */
    int guest;     /* descriptor of the program carrel-guest, executable and not readable */
    int worker;    /* descriptor of carrel-cell, which runs the commands of cell machines; or -1 */
    const struct mask *masks; /* names in /proc to hide; the last name is NULL */
    const struct sock_fprog *filter;
    const struct rootfs *root;
    const struct cgroup_set *cgroup;
    int64_t began_ns; /* the boot clock just before the process was made */
    int netns;
    int dev; /* detached copy of the /dev template */
    /* socket that receives the plan with its descriptors, then the permission to start */
    int orders;
};

/*
 * Descriptors that come with the plan, in this order. The granted directories follow. If the
 * overlay mounts of the berth do not fit the plan, new overlays of root and /usr and the disks
 * below them come last.
 */
enum { ORDER_CONTROL, ORDER_LISTENER, ORDER_ADMIN, ORDER_SPAWNER, ORDER_GRANTS };

/* Returns the size of the used part of a plan; only that part is sent. */
static inline size_t child_order_size(const struct plan *plan) {
    return sizeof(*plan) - (PLAN_MAX_GRANTS - plan->grant_count) * sizeof(plan->grants[0]);
}

/* Runs in the clone (new pid, ipc and uts namespaces) and never returns. */
void child_main(const struct child *c) __attribute__((noreturn));
