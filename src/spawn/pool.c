/* What is slow to make, made in advance: network namespaces, roots, cgroups. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "spawn/limits.h"
#include "spawn/netns.h"
#include "spawn/spawner.h"

static int make_netns(struct spawner *s, int *ret, struct err *err) {
    int ns = netns_new(s->own_net);
    if (ns < 0) {
        errno = -ns;
        return err_sys(err, "make network namespace");
    }
    *ret = ns;
    return 0;
}

/*
 * The first root tells what this kernel can do: overlays of detached layers (6.15), idmapped
 * tmpfs (6.3). What it cannot is done the older way from then on.
 */
static int make_root(struct spawner *s, uint64_t disk, uint64_t mem, struct rootfs *ret,
                     struct err *err) {
    for (;;) {
        if (rootfs_new(&s->maker, disk, mem, ret, err) == 0)
            return 0;
        if (!s->maker.by_name)
            s->maker.by_name = true;
        else if (!s->maker.tmpfs_plain && !s->rootless)
            s->maker.tmpfs_plain = true;
        else
            return -1;
        if (s->created)
            return -1; /* it worked before: the reason is another one */
    }
}

static bool refill_one(struct spawner *s, struct err *err) {
    size_t want = s->netns_count <= s->root_count && s->netns_count <= s->cgroup_count ? 0
                  : s->root_count <= s->cgroup_count                                  ? 1
                                                                                      : 2;
    switch (want) {
    case 0:
        if (make_netns(s, &s->netns_pool[s->netns_count], err) < 0)
            return false;
        s->netns_count++;
        return true;
    case 1:
        if (make_root(s, LIMIT_DISK, LIMIT_MEM, &s->root_pool[s->root_count], err) < 0)
            return false;
        s->root_count++;
        return true;
    default:
        if (cgroup_new(&s->cgroups, &s->cgroup_pool[s->cgroup_count], err) < 0)
            return false;
        s->cgroup_count++;
        return true;
    }
}

bool pool_refill(struct spawner *s) {
    struct err err;
    if (s->pool_broken || (s->netns_count == POOL_SIZE && s->root_count == POOL_SIZE &&
                           s->cgroup_count == POOL_SIZE))
        return false;
    if (refill_one(s, &err))
        return true;
    log_line(LOG_ERROR, "spawn", "refill pools: %s", err.text);
    s->pool_broken = true;
    return false;
}

int pool_take_netns(struct spawner *s, int *ret, struct err *err) {
    if (s->netns_count == 0)
        return make_netns(s, ret, err);
    *ret = s->netns_pool[--s->netns_count];
    return 0;
}

int pool_take_cgroup(struct spawner *s, struct cgroup_set *ret, struct err *err) {
    if (s->cgroup_count == 0)
        return cgroup_new(&s->cgroups, ret, err);
    *ret = s->cgroup_pool[--s->cgroup_count];
    return 0;
}

int pool_take_root(struct spawner *s, const struct plan *plan, struct rootfs *ret, struct err *err) {
    uint64_t disk = plan->disk_bytes ? plan->disk_bytes : LIMIT_DISK;
    uint64_t mem = plan->mem_bytes ? plan->mem_bytes : LIMIT_MEM;
    /* A pooled root has the default size and may lie on tmpfs, which counts as memory. */
    bool fits = disk == LIMIT_DISK && (mem >= LIMIT_MEM || s->rootless || s->maker.tmpfs_plain);
    if (!fits || s->root_count == 0)
        return make_root(s, disk, mem, ret, err);
    *ret = s->root_pool[--s->root_count];
    return 0;
}

void pool_drop(struct spawner *s) {
    while (s->netns_count)
        close(s->netns_pool[--s->netns_count]);
    while (s->root_count)
        rootfs_drop(&s->maker, &s->root_pool[--s->root_count]);
    while (s->cgroup_count) {
        struct cgroup_set *set = &s->cgroup_pool[--s->cgroup_count];
        cgroup_close(set);
        cgroup_remove(&s->cgroups, set->number);
    }
    s->pool_broken = false;
}
