#include "spawn/ready.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/msg.h"
#include "spawn/making.h"
#include "spawn/spawner.h"
#include "spawn/tree.h"

#define PREFIX "r-" /* as machines have m-; short, because an id is */

bool ready_is_name(const char *name) {
    return strncmp(name, PREFIX, strlen(PREFIX)) == 0;
}

/* Cgroup numbers are used once, also across restarts, so these names are too. */
static void name_of(const struct box *box, char name[32]) {
    snprintf(name, 32, PREFIX "%" PRIu64, box->cgroup);
}

static void drop_one(struct spawner *s, struct ready *r) {
    char name[32];
    name_of(r->box, name);
    making_undo(s, r->making);
    tree_remove(s->boxes, name);
    box_free(r->box);
    *r = (struct ready){0};
}

void ready_drop(struct spawner *s) {
    while (s->ready.count)
        drop_one(s, &s->ready.list[--s->ready.count]);
    s->ready.broken = false;
}

static const struct plan defaults = {.image = "host"};

static int make_one(struct spawner *s, struct ready *r, struct err *err) {
    char name[32];
    name_of(r->box, name);
    if (making_order(r->making, &defaults, err) < 0 ||
        making_record(s, r->making, r->box, name, err) < 0 || making_release(r->making, err) < 0) {
        drop_one(s, r);
        return -1;
    }
    r->making->is_ready = true;
    return 0;
}

static int start_one(struct spawner *s, struct ready *r, struct err *err) {
    struct making *m = making_new();
    struct box *box = box_new(s, "", false);
    if (!m || !box || making_gather(s, &defaults, NULL, m, err) < 0) {
        if (m)
            making_undo(s, m);
        free(box);
        return -1;
    }
    box_enter(box, m);
    *r = (struct ready){box, m};
    return make_one(s, r, err);
}

bool ready_refill(struct spawner *s) {
    struct ready_pool *pool = &s->ready;
    struct err err = {.text = "out of memory"};
    if (pool->broken || pool->count >= pool->wanted || s->berth_count < POOL_SIZE)
        return false;
    if (start_one(s, &pool->list[pool->count], &err) < 0) {
        log_line(LOG_ERROR, "spawn", "make a box ready: %s", err.text);
        pool->broken = true;
        return false;
    }
    pool->count++;
    return true;
}

/*
 * Its disk has a size and may lie in memory, grants are mounted before the guest starts, and
 * rootless nobody may look into a guest, not even at its namespaces.
 */
static bool fits(const struct spawner *s, const struct plan *plan) {
    return plan->grant_count == 0 && !plan->stack[0] && strcmp(plan->image, "host") == 0 &&
           !(s->rootless && plan->hostname[0]) &&
           (!plan->disk_bytes || plan->disk_bytes == LIMIT_DISK) &&
           (!plan->mem_bytes || plan->mem_bytes >= LIMIT_MEM);
}

/* A dying guest closes its connections long before it is dead. */
static bool is_alive(const struct box *box) {
    struct pollfd p[] = {{.fd = box->pidfd, .events = POLLIN},
                         {.fd = box->link, .events = POLLRDHUP}};
    return poll(p, 2, 0) == 0;
}

/* The box may not set it; we go into its namespace for as long as that takes. */
static int set_hostname(struct spawner *s, const struct box *box, const char *name,
                        struct err *err) {
    char path[32];
    if (!*name)
        return 0;
    snprintf(path, sizeof(path), "%d/ns/uts", (int)box->pid);
    int uts DEFER_CLOSE = openat(s->proc, path, O_RDONLY | O_CLOEXEC);
    if (uts < 0 || setns(uts, CLONE_NEWUTS) < 0)
        return err_sys(err, "enter a machine's host name");
    int r = sethostname(name, strlen(name)) < 0 ? err_sys(err, "set host name") : 0;
    if (setns(s->own_uts, CLONE_NEWUTS) < 0)
        return err_sys(err, "return to our own host name");
    return r;
}

static int say(int link, uint16_t type, const void *msg) {
    uint8_t frame[64];
    size_t n = msg_encode(frame, sizeof(frame), &(struct frame_head){.type = type}, msg);
    return n && send(link, frame, n, MSG_NOSIGNAL) == (ssize_t)n ? 0 : -1;
}

/* What was an argument of the guest when a box is made to measure. */
static int tell_guest(const struct box *box, const struct plan *plan, struct err *err) {
    struct msg_deadline deadline = {.in_ms = plan->deadline_ms};
    if ((plan->deadline_ms && say(box->link, MSG_DEADLINE, &deadline) < 0) ||
        (plan->linger && say(box->link, MSG_LINGER, NULL) < 0))
        return err_sys(err, "talk to the guest");
    return 0;
}

/* The new name makes it the creator's: everything else has been done by then. */
static int hand_out(struct spawner *s, struct ready *r, const struct plan *plan, struct err *err) {
    struct box *box = r->box;
    char name[32];
    name_of(box, name);
    box->linger = plan->linger;
    box->due_ms = box_due(plan);
    if (cgroup_limit(&s->cgroups, r->making->berth.cgroup.number, plan, err) < 0 ||
        set_hostname(s, box, plan->hostname, err) < 0 ||
        making_listen(s, r->making, plan, err) < 0 ||
        making_describe(s, r->making, plan, err) < 0 || tell_guest(box, plan, err) < 0 ||
        ((box->linger || box->due_ms) && making_amend(s, box, name, err) < 0))
        return -1;
    if (renameat(s->boxes, name, s->boxes, plan->id) < 0)
        return err_sys(err, "name machine '%s'", plan->id);
    memcpy(box->id, plan->id, sizeof(box->id));
    return 0;
}

struct making *ready_take(struct spawner *s, const struct plan *plan, struct box **ret) {
    struct ready_pool *pool = &s->ready;
    struct err err = {.text = "its guest has ended"};
    while (fits(s, plan) && pool->count) {
        struct ready r = pool->list[0];
        memmove(pool->list, pool->list + 1, --pool->count * sizeof(*pool->list));
        if (is_alive(r.box) && hand_out(s, &r, plan, &err) == 0) {
            *ret = r.box;
            return r.making;
        }
        log_line(LOG_WARN, "spawn", "a ready box is not used: %s", err.text);
        drop_one(s, &r);
    }
    return NULL;
}
