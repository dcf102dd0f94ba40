/* Requests about live boxes: list, usage, freezing, limits, deadline. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/statfs.h>

#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/limits.h"
#include "base/wire/msg.h"
#include "spawn/affinity.h"
#include "spawn/disk/layers.h"
#include "spawn/disk/quota.h"
#include "spawn/inside.h"
#include "spawn/make/making.h"
#include "spawn/spawner.h"
#include "spawn/vm/boot.h"

static int done(struct plan_message *m) {
    m->type = PLAN_DONE;
    return 0;
}

static struct box *live_box(struct spawner *s, const char *id, struct err *err) {
    struct box *box = box_find(s, id);
    if (box && !box->dead && !box->ending)
        return box;
    if (box)
        err_set(err, ERR_GONE, "machine '%s' is ending", id);
    else
        box_missing(s, id, err);
    return NULL;
}

static struct plan_found found_box(const struct spawner *s, const struct box *b) {
    uint64_t now = boot_ms(), end = b->due_ms ? b->due_ms - OVERDUE_MS : 0;
    struct plan_found f = {.layer = b->layer,
                           .mem_bytes = b->limits.mem_bytes,
                           .cpu_milli = b->limits.cpu_milli,
                           .pids = b->limits.pids,
                           .disk_bytes = b->limits.disk_bytes,
                           .vm = vm_is_booted(s, b),
                           .left_ms = !end        ? 0
                                      : end > now ? end - now
                                                  : 1};
    memcpy(f.id, b->id, sizeof(f.id));
    memcpy(f.store, b->store, sizeof(f.store));
    snprintf(f.image, sizeof(f.image), "%s", image_id_valid(b->image_key) ? b->image_key : "host");
    return f;
}

static int verbs_list(struct spawner *s, struct plan_message *m, struct verb_fds *fds,
                      struct err *err) {
    (void)fds;
    size_t n = 0;
    uint64_t from = m->cursor ? m->cursor : UINT64_MAX;
    /*
     * List the machines whose records cannot be read first, so that the daemon does not take them
     * for gone.
     */
    for (size_t i = 0; !m->cursor && i < s->unread_count; i++) {
        struct plan_found found = {.id = ""};
        memcpy(found.id, s->unread[i], ID_SIZE);
        if (n + PLAN_FOUND_SIZE > sizeof(m->text))
            return err_set(err, ERR_INTERNAL,
                           "cannot list the machines: the records of %zu machines cannot be read",
                           s->unread_count);
        if (id_valid(found.id, strlen(found.id), 'm'))
            n += plan_found_print(&found, m->text + n);
    }
    m->type = PLAN_IDS;
    m->cursor = 0;
    for (const struct box *b = s->list; b; b = b->next) {
        if (b->serial >= from || b->dead || b->linger != PLAN_DAEMONS || ready_is_name(b->id))
            continue;
        if (n + PLAN_FOUND_SIZE > sizeof(m->text))
            return 0;
        struct plan_found found = found_box(s, b);
        n += plan_found_print(&found, m->text + n);
        m->cursor = b->serial;
    }
    m->cursor = 0;
    return 0;
}

/*
 * Reads the used disk space of a box. Its root overlay reports the space of the filesystem with the
 * box's changes, so no path inside the box is looked up.
 */
static void disk_used(const struct spawner *s, const struct box *box, struct plan_stats *ret) {
    char path[32];
    struct statfs fs;
    snprintf(path, sizeof(path), "%d/root", (int)box->pid);
    int root DEFER_CLOSE = openat(s->proc, path, O_PATH | O_CLOEXEC);
    if (root < 0 || fstatfs(root, &fs) < 0 || fs.f_bfree > fs.f_blocks)
        return;
    ret->disk_bytes = (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_frsize;
    if (fs.f_files && fs.f_ffree <= fs.f_files)
        ret->disk_files_permille = (uint64_t)(fs.f_files - fs.f_ffree) * 1000 / fs.f_files;
}

static int stats(struct spawner *s, struct plan_message *m, struct verb_fds *fds, struct err *err) {
    (void)fds;
    (void)err;
    m->type = PLAN_STATS_ARE;
    for (size_t i = 0; i < m->row_count; i++) {
        struct plan_stats *st = &m->rows[i].stats;
        struct box *box = live_box(s, m->rows[i].id, NULL);
        *st = (struct plan_stats){.exists = box != NULL};
        if (!box)
            continue;
        st->drifted = box->drifted;
        disk_used(s, box, st);
        st->lookups_refused = box_lookups_refused(s, box);
        cgroup_stats(&s->cgroups, s->proc, box->cgroup, st);
    }
    return 0;
}

static int freeze(struct spawner *s, struct plan_message *m, struct verb_fds *fds,
                  struct err *err) {
    (void)fds;
    struct box *box = live_box(s, m->plan.id, err);
    if (!box)
        return -1;
    int r = cgroup_freeze(&s->cgroups, box->cgroup, m->frozen != 0);
    if (r == -EOPNOTSUPP) {
        err_set(err, ERR_UNSUPPORTED,
                "pausing a machine requires a cgroup, and this host gives you none");
        return err_remedy(
            err, "use carrel stop, which keeps files but no processes; or see carrel doctor");
    }
    if (r < 0)
        return err_num(err, r, "cannot freeze machine '%s'", box->id);
    return r ? done(m) : err_set(err, ERR_BUSY, "machine '%s' did not freeze in time", box->id);
}

/* Refuses a new memory limit below the current use of the box, because it would kill processes. */
static int check_memory(struct spawner *s, const struct box *box, uint64_t wanted,
                        struct err *err) {
    struct plan_stats now = {0};
    char path[64], text[32];
    cgroup_stats(&s->cgroups, s->proc, box->cgroup, &now);
    if (now.mem_bytes <= wanted)
        return 0;
    if (s->cgroups.mode == CGROUP_V2) {
        snprintf(path, sizeof(path), "b%" PRIu64 "/work/memory.reclaim", box->cgroup);
        snprintf(text, sizeof(text), "%" PRIu64, now.mem_bytes - wanted);
        write_file_at(s->cgroups.memory, path, text);
        cgroup_stats(&s->cgroups, s->proc, box->cgroup, &now);
    }
    if (s->cgroups.mode == CGROUP_V1 || now.mem_bytes <= wanted)
        return 0; /* cgroup v1 frees caches by itself, or refuses the limit */
    return err_set(err, ERR_BUSY,
                   "machine '%s' uses %" PRIu64 " MiB of memory, more than the new limit", box->id,
                   now.mem_bytes >> 20);
}

static int limit_disk(struct spawner *s, const struct box *box, uint64_t bytes, struct err *err) {
    if (!box->upper || box->elsewhere) {
        err_set(err, ERR_UNSUPPORTED,
                "the disk limit of machine '%s' cannot be changed: its disk has no project quota",
                box->id);
        return err_remedy(err, "changing a disk limit requires that CARREL_HOME is on a filesystem "
                               "with project quota; see: carrel doctor");
    }
    int r = quota_limit(s->maker.uppers.dir, box->upper, bytes, LIMIT_INODES(bytes));
    return r < 0 ? err_num(err, r, "cannot set the disk limit of machine '%s'", box->id) : 0;
}

static void keep_limits(struct box *box, const struct plan *plan) {
    if (plan->mem_bytes)
        box->limits.mem_bytes = plan->mem_bytes;
    if (plan->cpu_milli)
        box->limits.cpu_milli = plan->cpu_milli == PLAN_UNLIMITED ? 0 : plan->cpu_milli;
    if (plan->pids)
        box->limits.pids = plan->pids;
    if (plan->disk_bytes)
        box->limits.disk_bytes = plan->disk_bytes;
}

static int change_limits(struct spawner *s, struct plan_message *m, struct verb_fds *fds,
                         struct err *err) {
    (void)fds;
    struct plan checked = m->plan;
    if (checked.cpu_milli == PLAN_UNLIMITED)
        checked.cpu_milli = 1;
    struct box *box = live_box(s, m->plan.id, err);
    if (!box || limits_check(s, &checked, err) < 0 ||
        (m->plan.mem_bytes && check_memory(s, box, m->plan.mem_bytes, err) < 0) ||
        (m->plan.disk_bytes && limit_disk(s, box, m->plan.disk_bytes, err) < 0) ||
        cgroup_limit(&s->cgroups, box->cgroup, &m->plan, err) < 0)
        return -1;
    keep_limits(box, &m->plan);
    if (m->plan.cpu_milli)
        affinity_change(s, box);
    return making_amend(s, box, box->id, err) < 0 ? -1 : done(m);
}

/*
 * Changes the deadline of a box. Writes it to the box's record first: the spawner enforces the
 * deadline if the guest does not.
 */
static int deadline(struct spawner *s, struct plan_message *m, struct verb_fds *fds,
                    struct err *err) {
    (void)fds;
    uint8_t frame[64];
    struct msg_deadline in = {.in_ms = m->plan.deadline_ms};
    struct box *box = live_box(s, m->plan.id, err);
    if (!box || limits_check(s, &m->plan, err) < 0)
        return -1;
    box->due_ms = box_due(&m->plan);
    if (making_amend(s, box, box->id, err) < 0)
        return -1;
    size_t n = msg_encode(frame, sizeof(frame), &(struct frame_head){.type = MSG_DEADLINE}, &in);
    if (box->link < 0 || send(box->link, frame, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n)
        return err_set(err, ERR_BUSY, "the guest of machine '%s' does not answer", box->id);
    return done(m);
}

static int open_doors(struct spawner *s, struct plan_message *m, struct verb_fds *fds,
                      struct err *err) {
    struct box *box = live_box(s, m->plan.id, err);
    if (!box || box_listen(s, box, fds->v, err) < 0)
        return -1;
    fds->count = NETNS_FDS;
    return done(m);
}

static int open_uppers(struct spawner *s, struct plan_message *m, struct verb_fds *fds,
                       struct err *err) {
    struct box *box = live_box(s, m->plan.id, err);
    if (!box || layers_uppers(s, box, m->text, fds, err) < 0)
        return -1;
    m->type = PLAN_TEXT;
    return 0;
}

static int dial(struct spawner *s, struct plan_message *m, struct verb_fds *fds, struct err *err) {
    struct box *box = live_box(s, m->plan.id, err);
    if (!box)
        return -1;
    if (m->port > 65535)
        return err_set(err, ERR_INVALID, "the port of a machine must be between 1 and 65535");
    fds->v[0] = m->port ? box_dial(s, box, (uint16_t)m->port, err) : vm_dial_serial(s, box, err);
    if (fds->v[0] < 0)
        return -1;
    fds->count = 1;
    return done(m);
}

static int lend(struct spawner *s, struct plan_message *m, struct verb_fds *fds, struct err *err) {
    (void)fds;
    struct box *box = live_box(s, m->plan.id, err);
    return box ? box_lend(s, box, m, err) : -1;
}

/*
 * Moves a box to another store. The daemon of its earlier store does not manage it any more, so
 * this is done only on request.
 */
static int claim(struct spawner *s, struct plan_message *m, struct verb_fds *fds, struct err *err) {
    (void)fds;
    struct box *box = live_box(s, m->plan.id, err);
    char before[ID_SIZE];
    if (!box)
        return -1;
    static_assert(sizeof(m->text) >= LAYERS_TEXT_SIZE, "a stack fits");
    if (making_read_stack(s, box, m->text, err) < 0)
        return -1;
    memcpy(before, box->store, sizeof(before));
    memcpy(box->store, m->plan.store, sizeof(box->store));
    m->type = PLAN_TEXT;
    if (making_amend(s, box, box->id, err) == 0)
        return 0;
    memcpy(box->store, before, sizeof(before));
    return -1;
}

verb_fn *verb_of(enum plan_type type) {
    static verb_fn *const verbs[] = {
        [PLAN_LIST] = verbs_list,      [PLAN_STATS] = stats,       [PLAN_FREEZE] = freeze,
        [PLAN_LIMITS] = change_limits, [PLAN_DEADLINE] = deadline, [PLAN_LISTEN] = open_doors,
        [PLAN_UPPERS] = open_uppers,   [PLAN_DIAL] = dial,         [PLAN_LEND] = lend,
        [PLAN_CLAIM] = claim,
    };
    return type < sizeof(verbs) / sizeof(*verbs) ? verbs[type] : NULL;
}
