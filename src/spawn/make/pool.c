/*
 * The pool of berths (prepared boxes), which are made in advance for the default image and disk
 * size.
 */
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "spawn/make/making.h"
#include "spawn/spawner.h"

bool pool_wants_root(const struct spawner *s) {
    return !s->pool_broken && s->berth_count < POOL_SIZE && s->growing.stage == BERTH_ROOT;
}

bool pool_refill(struct spawner *s) {
    const struct rootfs_size usual = {.disk_bytes = s->maker.usual, .mem_bytes = LIMIT_MEM};
    struct err err;
    if (s->pool_broken || s->berth_count == POOL_SIZE)
        return false;
    if (s->growing.stage == 0)
        s->growing = BERTH_NONE;
    if (berth_advance(s, &s->growing, &usual, &err) < 0) {
        log_line(LOG_ERROR, "spawn", "refill the pool of berths (prepared boxes): %s", err.text);
        berth_drop(s, &s->growing);
        s->pool_broken = true;
        s->pool_err = err;
        return false;
    }
    if (s->growing.stage == BERTH_READY) {
        s->berths[s->berth_count++] = s->growing;
        s->growing = BERTH_NONE;
    }
    return true;
}

int pool_take(struct spawner *s, const struct plan *plan, struct berth *ret, struct err *err) {
    const struct rootfs_size size = {
        .disk_bytes = plan->disk_bytes ? plan->disk_bytes : s->maker.usual,
        .mem_bytes = plan->mem_bytes ? plan->mem_bytes : LIMIT_MEM,
        .bare = plan_is_restacked(plan),
    };
    /*
     * The root filesystem of a pooled berth has the default size and may be on a tmpfs, which
     * counts as memory of the machine.
     */
    bool fits = size.disk_bytes == s->maker.usual && (size.mem_bytes >= LIMIT_MEM || s->rootless ||
                                                      s->maker.tmpfs_plain || s->maker.btrfs);
    if (fits && s->berth_count) {
        /* Take the oldest berth first: its process has most likely finished its start. */
        *ret = s->berths[0];
        memmove(s->berths, s->berths + 1, --s->berth_count * sizeof(*s->berths));
        return 0;
    }
    struct berth b = BERTH_NONE;
    while (b.stage < BERTH_READY)
        if (berth_advance(s, &b, &size, err) < 0) {
            berth_drop(s, &b);
            return -1;
        }
    *ret = b;
    s->no_berth++;
    return 0;
}

void pool_drop(struct spawner *s) {
    ready_drop(s);
    while (s->berth_count)
        berth_drop(s, &s->berths[--s->berth_count]);
    if (s->growing.stage)
        berth_drop(s, &s->growing);
    s->pool_broken = false;
}
