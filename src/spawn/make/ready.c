#include "spawn/make/ready.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/defer.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/wire/msg.h"
#include "spawn/disk/tree.h"
#include "spawn/make/making.h"
#include "spawn/spawner.h"

enum { IMAGE_REST_MS = 300000 };
#define READY_DISK_MAX (16ull << 30) /* making a larger disk would take too long in idle time */
#define PREFIX "r-" /* names of ready boxes begin with r-, while ids of machines begin with m- */

bool ready_is_name(const char *name) {
    return strncmp(name, PREFIX, strlen(PREFIX)) == 0;
}

/*
 * Writes the name of a ready box, which contains its cgroup number. Cgroup numbers are never
 * reused, even after restarts, so neither are these names.
 */
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

static void ready_drop_image(struct spawner *s, struct ready_image *of) {
    while (of->count)
        drop_one(s, &of->list[--of->count]);
    *of = (struct ready_image){0};
}

void ready_drop(struct spawner *s) {
    while (s->ready.count)
        drop_one(s, &s->ready.list[--s->ready.count]);
    for (size_t i = 0; i < READY_IMAGES; i++)
        ready_drop_image(s, &s->ready.images[i]);
    s->ready.broken = false;
}

static struct ready_image *of_image(struct spawner *s, const char *image, uint64_t disk_bytes) {
    for (size_t i = 0; i < READY_IMAGES; i++)
        if (strcmp(s->ready.images[i].image, image) == 0 &&
            s->ready.images[i].disk_bytes == disk_bytes)
            return &s->ready.images[i];
    return NULL;
}

void ready_renew(struct spawner *s, const char *image) {
    for (size_t i = 0; i < READY_IMAGES; i++) {
        struct ready_image *of = &s->ready.images[i];
        while (of->count && sealed_is_part(s, of->image, image))
            drop_one(s, &of->list[--of->count]);
    }
}

void ready_forget(struct spawner *s, const char *image) {
    for (size_t i = 0; i < READY_IMAGES; i++)
        if (strcmp(s->ready.images[i].image, image) == 0)
            ready_drop_image(s, &s->ready.images[i]);
}

size_t ready_of_images(const struct spawner *s) {
    size_t n = 0;
    for (size_t i = 0; i < READY_IMAGES; i++)
        n += s->ready.images[i].count;
    return n;
}

static const struct plan defaults = {.image = "host"};

/* The sockets of the gate are opened before anybody waits for the box. */
static int make_one(struct spawner *s, struct ready *r, const struct plan *plan, struct err *err) {
    char name[32];
    name_of(r->box, name);
    if (making_open_doors(s, r->making, name, err) < 0 || making_order(r->making, plan, err) < 0 ||
        making_record(s, r->making, r->box, name, err) < 0 || making_release(r->making, err) < 0) {
        drop_one(s, r);
        return -1;
    }
    r->making->is_ready = true;
    return 0;
}

static int start_one(struct spawner *s, struct ready *r, const struct plan *plan, struct err *err) {
    struct making *m = making_new();
    struct box *box = box_new(s, "", false);
    if (!m || !box || making_gather(s, plan, NULL, m, err) < 0) {
        if (m)
            making_undo(s, m);
        free(box);
        return -1;
    }
    box_enter(box, m);
    if (image_id_valid(plan->image))
        box_take_image(s, box, plan->image);
    *r = (struct ready){box, m};
    return make_one(s, r, plan, err);
}

/*
 * Makes a ready box of an image. If that fails, it is not retried until the image is requested
 * again.
 */
static bool refill_image(struct spawner *s, struct ready_image *of) {
    struct plan plan = {.disk_bytes = of->disk_bytes};
    struct err err = {.text = "the spawner is out of memory"};
    if (of->image[0] && boot_ms() - of->asked_ms > IMAGE_REST_MS)
        ready_drop_image(s, of);
    if (of->count >= of->wanted || s->berth_count < POOL_SIZE)
        return false;
    snprintf(plan.image, sizeof(plan.image), "%s", of->image);
    if (start_one(s, &of->list[of->count], &plan, &err) == 0) {
        of->count++;
        return true;
    }
    log_line(LOG_WARN, "spawn", "prepare a ready box of an image: %s", err.text);
    of->wanted = of->count;
    return false;
}

static bool refill_images(struct spawner *s) {
    for (size_t i = 0; i < READY_IMAGES; i++)
        if (refill_image(s, &s->ready.images[i]))
            return true;
    return false;
}

static bool refill_host(struct spawner *s) {
    struct ready_pool *pool = &s->ready;
    struct err err = {.text = "the spawner is out of memory"};
    if (pool->broken || pool->count >= pool->wanted || s->berth_count < POOL_SIZE)
        return false;
    if (start_one(s, &pool->list[pool->count], &defaults, &err) < 0) {
        log_line(LOG_ERROR, "spawn", "prepare a ready box: %s", err.text);
        pool->broken = true;
        return false;
    }
    pool->count++;
    return true;
}

bool ready_refill(struct spawner *s) {
    return refill_host(s) || refill_images(s);
}

static bool is_usual_disk(const struct spawner *s, const struct plan *plan) {
    return !plan->disk_bytes || plan->disk_bytes == s->maker.usual;
}

/*
 * True if ready boxes may have the disk of the plan: the default disk, which may be in memory, or,
 * for an image, another ext4 disk. Builds of images have such disks.
 */
static bool ready_disk_fits(const struct spawner *s, const struct plan *plan) {
    uint64_t mem = plan->mem_bytes ? plan->mem_bytes : LIMIT_MEM;
    return is_usual_disk(s, plan) ||
           (image_id_valid(plan->image) && plan->disk_bytes <= READY_DISK_MAX && !s->maker.btrfs &&
            !rootfs_fits_tmpfs(&s->maker, plan->disk_bytes, mem));
}

/*
 * True if a ready box can become the machine of this plan. Grants must be mounted before the guest
 * starts. A rootless spawner cannot enter namespaces of a guest.
 */
static bool ready_fits(const struct spawner *s, const struct plan *plan) {
    return plan->grant_count == 0 && !plan->stack[0] && !plan->cell &&
           !(s->rootless && plan->hostname[0]) && ready_disk_fits(s, plan) &&
           (!plan->mem_bytes || plan->mem_bytes >= LIMIT_MEM);
}

/*
 * True if the guest has not closed its connection: a dying guest closes it long before it is dead.
 */
static bool is_alive(const struct box *box) {
    struct pollfd p[] = {{.fd = box->pidfd, .events = POLLIN},
                         {.fd = box->link, .events = POLLRDHUP}};
    return poll(p, 2, 0) == 0;
}

/*
 * The box may not set its host name itself, so the spawner enters its UTS namespace for a moment.
 */
static int set_hostname(struct spawner *s, const struct box *box, const char *name,
                        struct err *err) {
    char path[32];
    if (!*name)
        return 0;
    snprintf(path, sizeof(path), "%d/ns/uts", (int)box->pid);
    int uts DEFER_CLOSE = openat(s->proc, path, O_RDONLY | O_CLOEXEC);
    if (uts < 0 || setns(uts, CLONE_NEWUTS) < 0)
        return err_sys(err, "cannot enter the UTS namespace of a machine");
    int r = sethostname(name, strlen(name)) < 0
                ? err_sys(err, "cannot set the host name of a machine")
                : 0;
    if (setns(s->own_uts, CLONE_NEWUTS) < 0)
        return err_sys(err, "cannot return to the spawner's own UTS namespace");
    return r;
}

static int ready_say(int link, uint16_t type, const void *msg) {
    uint8_t frame[64];
    size_t n = msg_encode(frame, sizeof(frame), &(struct frame_head){.type = type}, msg);
    return n && send(link, frame, n, MSG_NOSIGNAL) == (ssize_t)n ? 0 : -1;
}

/*
 * Sends the settings of the machine to the running guest. A guest that is started from a berth gets
 * them as arguments.
 */
static int tell_guest(const struct box *box, const struct plan *plan, struct err *err) {
    struct msg_deadline deadline = {.in_ms = plan->deadline_ms};
    if ((plan->deadline_ms && ready_say(box->link, MSG_DEADLINE, &deadline) < 0) ||
        (plan->linger && ready_say(box->link, MSG_LINGER, NULL) < 0))
        return err_sys(err, "cannot send settings to the guest of a machine");
    return 0;
}

/*
 * Turns a ready box into the machine of the plan. Renaming its directory makes it the machine's
 * box, so that is the last action.
 */
static int hand_out(struct spawner *s, struct ready *r, const struct plan *plan, struct err *err) {
    struct box *box = r->box;
    char name[32];
    name_of(box, name);
    box->linger = plan->linger;
    box->due_ms = box_due(plan);
    box_belong(box, plan);
    if (!plan->gate)
        making_close_doors(r->making);
    if (cgroup_limit(&s->cgroups, r->making->berth.cgroup.number, plan, err) < 0 ||
        set_hostname(s, box, plan->hostname, err) < 0 ||
        making_describe(s, r->making, plan, err) < 0 || tell_guest(box, plan, err) < 0 ||
        ((box->linger || box->due_ms) && making_amend(s, box, name, err) < 0))
        return -1;
    if (renameat(s->boxes, name, s->boxes, plan->id) < 0)
        return err_sys(err, "cannot rename a ready box to machine '%s'", plan->id);
    memcpy(box->id, plan->id, sizeof(box->id));
    return 0;
}

/*
 * Finds the entry of an image in the list of ready images, or reuses the entry of the least
 * recently requested image.
 */
static struct ready_image *ask_image(struct spawner *s, const char *image, uint64_t disk_bytes) {
    struct ready_image *of = of_image(s, image, disk_bytes), *oldest = s->ready.images;
    for (size_t i = 0; !of && i < READY_IMAGES; i++)
        if (s->ready.images[i].asked_ms < oldest->asked_ms)
            oldest = &s->ready.images[i];
    if (!of) {
        ready_drop_image(s, of = oldest);
        snprintf(of->image, sizeof(of->image), "%s", image);
        of->disk_bytes = disk_bytes;
    }
    of->asked_ms = boot_ms();
    if (of->count == 0 && of->wanted < READY_OF_IMAGE)
        of->wanted++;
    return of;
}

static struct making *take_from(struct spawner *s, struct ready *list, size_t *count,
                                const struct plan *plan, struct box **ret) {
    struct err err = {.text = "its guest has ended"};
    while (*count) {
        struct ready r = list[0];
        memmove(list, list + 1, --*count * sizeof(*list));
        if (is_alive(r.box) && hand_out(s, &r, plan, &err) == 0) {
            *ret = r.box;
            return r.making;
        }
        log_line(LOG_WARN, "spawn", "use a ready box: %s", err.text);
        drop_one(s, &r);
    }
    return NULL;
}

bool ready_has(const struct spawner *s, const struct plan *plan) {
    return ready_fits(s, plan) && !image_id_valid(plan->image) && s->ready.count;
}

struct making *ready_take(struct spawner *s, const struct plan *plan, struct box **ret) {
    if (!ready_fits(s, plan))
        return NULL;
    if (!image_id_valid(plan->image))
        return take_from(s, s->ready.list, &s->ready.count, plan, ret);
    if (!s->ready.wanted) /* ready boxes are turned off */
        return NULL;
    struct ready_image *of =
        ask_image(s, plan->image, is_usual_disk(s, plan) ? 0 : plan->disk_bytes);
    return take_from(s, of->list, &of->count, plan, ret);
}
