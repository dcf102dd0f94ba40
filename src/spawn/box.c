/* One box: from a plan to a running guest, and from a dead guest to nothing. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/json.h"
#include "base/log.h"
#include "base/msg.h"
#include "spawn/limits.h"
#include "spawn/mounts.h"
#include "spawn/spawner.h"
#include "spawn/tree.h"

/* What goes into making one box; whatever is still here at the end is closed. */
struct making {
    struct rootfs root;
    struct cgroup_set cgroup;
    int netns, dev, listener;
    int control[2], link[2], go[2];
    int grants[PLAN_MAX_GRANTS], uppers[PLAN_MAX_GRANTS];
    bool has_root, has_cgroup, has_dir;
};

#define MAKING_NONE                                                                              \
    ((struct making){.root = ROOTFS_NONE, .netns = -1, .dev = -1, .listener = -1,                \
                     .control = {-1, -1}, .link = {-1, -1}, .go = {-1, -1},                      \
                     .cgroup = {.guest_procs = -1, .tasks = {-1, -1, -1}}})

static void close_fd(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void making_close(struct making *m) {
    int *fds[] = {&m->netns, &m->dev, &m->listener, &m->control[0], &m->control[1],
                  &m->link[0], &m->link[1], &m->go[0], &m->go[1]};
    for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++)
        close_fd(fds[i]);
    for (size_t i = 0; i < PLAN_MAX_GRANTS; i++) {
        close_fd(&m->grants[i]);
        close_fd(&m->uppers[i]);
    }
    rootfs_close(&m->root);
    cgroup_close(&m->cgroup);
}

static const struct limit {
    const char *name;
    size_t offset;
    uint64_t min, max;
} limits[] = {
    {"memory", offsetof(struct plan, mem_bytes), LIMIT_MEM_MIN, LIMIT_BYTES_MAX},
    {"cpu", offsetof(struct plan, cpu_milli), 1, LIMIT_CPU_MAX_MILLI},
    {"process", offsetof(struct plan, pids), 1, LIMIT_PIDS_MAX},
    {"disk", offsetof(struct plan, disk_bytes), LIMIT_DISK_MIN, LIMIT_BYTES_MAX},
};

/* What was asked for and cannot be kept is refused, never pretended. */
static int check(const struct spawner *s, const struct plan *plan, size_t fds, struct err *err) {
    const int enforced[] = {s->cgroups.memory, s->cgroups.cpu, s->cgroups.pids, 0};
    for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
        uint64_t value = *(const uint64_t *)((const char *)plan + limits[i].offset);
        if (value == 0)
            continue;
        if (value < limits[i].min || value > limits[i].max)
            return err_set(err, ERR_INVALID, "a %s limit of %" PRIu64 " is out of range (%" PRIu64
                           " to %" PRIu64 ")", limits[i].name, value, limits[i].min, limits[i].max);
        if (enforced[i] < 0) {
            err_set(err, ERR_UNSUPPORTED, "this host cannot enforce a %s limit", limits[i].name);
            return err_remedy(err, "leave the limit out, or see: carrel doctor");
        }
    }
    if (strcmp(plan->image, "host") != 0)
        return err_set(err, ERR_NOT_FOUND, "there is no image '%s'", plan->image);
    if (fds != plan->grant_count)
        return err_set(err, ERR_INVALID, "%zu descriptors for %zu grants", fds, plan->grant_count);
    if (s->rootless && plan->disk_bytes > (1ull << 40))
        return err_set(err, ERR_UNSUPPORTED, "a disk limit on disk needs root");
    return 0;
}

static int describe(const struct spawner *s, const struct plan *plan, struct buf *out) {
    struct json j = JSON(out);
    json_object(&j, NULL);
    json_string(&j, "id", plan->id);
    json_string(&j, "kind", "box");
    json_string(&j, "image", plan->image);
    json_object(&j, "limits");
    json_u64(&j, "memory_bytes", plan->mem_bytes ? plan->mem_bytes : LIMIT_MEM);
    json_u64(&j, "disk_bytes", plan->disk_bytes ? plan->disk_bytes : LIMIT_DISK);
    json_u64(&j, "processes", plan->pids ? plan->pids : LIMIT_PIDS);
    if (plan->cpu_milli)
        json_u64(&j, "cpu_milli", plan->cpu_milli);
    json_u64(&j, "lifetime_ms", plan->deadline_ms);
    json_end(&j, '}');
    json_array(&j, "enforced");
    if (s->cgroups.memory >= 0)
        json_string(&j, NULL, "memory");
    if (s->cgroups.cpu >= 0)
        json_string(&j, NULL, "cpu");
    if (s->cgroups.pids >= 0)
        json_string(&j, NULL, "processes");
    json_string(&j, NULL, "disk");
    json_end(&j, ']');
    json_object(&j, "network");
    json_string(&j, "policy", "none");
    json_end(&j, '}');
    json_array(&j, "grants");
    static const char *const modes[] = {"", "ro", "cow", "rw"};
    for (size_t i = 0; i < plan->grant_count; i++) {
        json_object(&j, NULL);
        json_string(&j, "path", plan->grants[i].path);
        json_string(&j, "mode", modes[plan->grants[i].mode]);
        json_end(&j, '}');
    }
    json_end(&j, ']');
    json_end(&j, '}');
    return j.failed || !buf_add(out, "\n", 1) ? -1 : 0;
}

/* Written before the box's first process, so that whatever comes later can be found. */
static int write_down(struct spawner *s, const struct plan *plan, const struct making *m,
                      struct err *err) {
    char text[512];
    snprintf(text, sizeof(text),
             "slot=%" PRIu32 "\ncgroup=%" PRIu64 "\nlinger=%" PRIu64 "\nimage=%s\n", m->root.slot,
             m->cgroup.number, plan->linger, s->image.key);
    if (mkdirat(s->boxes, plan->id, 0700) < 0)
        return err_sys(err, "make machine '%s'", plan->id);
    int dir DEFER_CLOSE = openat(s->boxes, plan->id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = dir < 0 ? -errno : tree_file(dir, "box", text, 0600, geteuid(), getegid());
    if (r == 0)
        return 0;
    errno = -r;
    return err_sys(err, "write down machine '%s'", plan->id);
}

static int listen_in(struct spawner *s, const char *id) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd DEFER_CLOSE = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/%s/guest.sock", s->boxes, id);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 16) < 0)
        return -errno;
    return TAKE_FD(fd);
}

/* The host speaks first; said before the guest exists, it costs nobody a wait. */
static int greet(int link) {
    uint8_t frame[64];
    struct msg_hello hello = {.version = MSG_VERSION, .features = MSG_FEATURE_FDS};
    size_t n = msg_encode(frame, sizeof(frame), &(struct frame_head){.type = MSG_HELLO}, &hello);
    return write(link, frame, n) == (ssize_t)n ? 0 : -1;
}

static int open_channels(struct spawner *s, const struct plan *plan, struct making *m,
                         struct err *err) {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, m->control) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, m->link) < 0 ||
        pipe2(m->go, O_CLOEXEC) < 0 || greet(m->link[0]) < 0)
        return err_sys(err, "open channels");
    m->listener = listen_in(s, plan->id);
    m->dev = mount_clone(s->dev, "");
    if (m->listener < 0 || m->dev < 0) {
        errno = -(m->listener < 0 ? m->listener : m->dev);
        return err_sys(err, m->listener < 0 ? "listen for the guest" : "clone /dev");
    }
    return 0;
}

static int gather(struct spawner *s, const struct plan *plan, const int *fds, struct making *m,
                  struct err *err) {
    if (pool_take_root(s, plan, &m->root, err) < 0)
        return -1;
    m->has_root = true;
    if (pool_take_cgroup(s, &m->cgroup, err) < 0)
        return -1;
    m->has_cgroup = true;
    if (write_down(s, plan, m, err) < 0)
        return -1;
    m->has_dir = true;
    if (cgroup_limit(&s->cgroups, &m->cgroup, plan, err) < 0 ||
        pool_take_netns(s, &m->netns, err) < 0 || open_channels(s, plan, m, err) < 0)
        return -1;
    for (unsigned i = 0; i < plan->grant_count; i++)
        if (rootfs_grant(&s->maker, &m->root, &plan->grants[i], i, fds[i], &m->grants[i],
                         &m->uppers[i], err) < 0)
            return -1;
    struct buf json DEFER(buf_done) = BUF(65536);
    if (describe(s, plan, &json) < 0)
        return err_set(err, ERR_LIMIT, "machine.json is too large");
    return rootfs_meta(&s->maker, &m->root, json.data, err);
}

static int start(struct spawner *s, const struct plan *plan, struct making *m, struct box *box,
                 struct err *err) {
    uint64_t mem = plan->mem_bytes ? plan->mem_bytes : LIMIT_MEM;
    struct child child = {
        .anchor_ns = s->anchor_ns, .guest = s->guest, .masks = s->masks, .filter = &s->filter,
        .rootless = s->rootless, .plan = plan, .root = &m->root, .cgroup = &m->cgroup,
        .netns = m->netns, .dev = m->dev, .go = m->go[0], .control = m->control[1],
        .listener = m->listener, .spawner = m->link[1], .shm_bytes = mem / 2,
    };
    memcpy(child.grants, m->grants, sizeof(child.grants));
    struct clone_args args = {
        .flags = CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_PIDFD,
        .pidfd = (uint64_t)(uintptr_t)&box->pidfd, .exit_signal = SIGCHLD,
    };
    box->pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (box->pid == 0) {
        close(m->go[1]); /* so that our own copy does not keep the pipe open */
        child_main(&child);
    }
    if (box->pid < 0)
        return err_sys(err, "clone");
    return 0;
}

/* From here on the box is in the books, and the child may become it. */
static int let_go(struct spawner *s, const struct making *m, const struct box *box, struct err *err) {
    char path[64], text[24];
    snprintf(path, sizeof(path), "%s/pid", box->plan.id);
    snprintf(text, sizeof(text), "%d\n", (int)box->pid);
    int r = tree_file(s->boxes, path, text, 0600, geteuid(), getegid());
    if (r == 0 && write(m->go[1], "g", 1) == 1)
        return 0;
    errno = -r;
    return err_sys(err, "write down machine '%s'", box->plan.id);
}

static void undo(struct spawner *s, const struct plan *plan, struct making *m) {
    if (m->has_dir)
        tree_remove(s->boxes, plan->id);
    if (m->has_cgroup) {
        cgroup_close(&m->cgroup);
        cgroup_remove(&s->cgroups, m->cgroup.number);
    }
    if (m->has_root)
        rootfs_drop(&s->maker, &m->root);
}

static struct box *box_new(struct spawner *s, const struct plan *plan) {
    struct box *box = calloc(1, sizeof(*box));
    if (!box)
        return NULL;
    box->plan = *plan;
    box->pidfd = box->link = box->owner = -1;
    snprintf(box->image_key, sizeof(box->image_key), "%s", s->image.key);
    return box;
}

static void box_enlist(struct spawner *s, struct box *box) {
    box->next = s->list;
    s->list = box;
    s->box_count++;
}

int box_create(struct spawner *s, const struct plan *plan, const int *fds, size_t fd_count,
               struct box **ret, int ret_fds[1 + PLAN_MAX_GRANTS], size_t *ret_fd_count,
               struct err *err) {
    struct making m DEFER(making_close) = MAKING_NONE;
    for (size_t i = 0; i < PLAN_MAX_GRANTS; i++)
        m.grants[i] = m.uppers[i] = -1;
    if (check(s, plan, fd_count, err) < 0)
        return -1;
    if (box_find(s, plan->id))
        return err_set(err, ERR_EXISTS, "machine '%s' exists", plan->id);
    struct box *box DEFER_FREE = box_new(s, plan);
    if (!box)
        return err_set(err, ERR_LIMIT, "out of memory");
    if (gather(s, plan, fds, &m, err) < 0 || start(s, plan, &m, box, err) < 0) {
        undo(s, plan, &m);
        return -1;
    }
    box->slot = m.root.slot;
    box->cgroup = m.cgroup.number;
    box->spares = m.cgroup.spare_count;
    if (let_go(s, &m, box, err) < 0) {
        kill(box->pid, SIGKILL);
        waitpid(box->pid, NULL, 0);
        undo(s, plan, &m);
        return -1;
    }
    box->link = TAKE_FD(m.link[0]);
    *ret_fd_count = 0;
    ret_fds[(*ret_fd_count)++] = TAKE_FD(m.control[0]);
    for (size_t i = 0; i < plan->grant_count; i++)
        if (m.uppers[i] >= 0)
            ret_fds[(*ret_fd_count)++] = TAKE_FD(m.uppers[i]);
    s->created++;
    box_enlist(s, box);
    *ret = TAKE(box);
    return 0;
}

struct box *box_find(struct spawner *s, const char *id) {
    for (struct box *b = s->list; b; b = b->next)
        if (strcmp(b->plan.id, id) == 0)
            return b;
    return NULL;
}

/* pid 1 takes everything in its pid namespace along. */
void box_kill(struct box *box) {
    if (box->pidfd >= 0)
        pidfd_send_signal(box->pidfd, SIGKILL, NULL, 0);
}

bool box_clean(struct spawner *s, struct box *box) {
    if (box->pid > 0)
        waitpid(box->pid, NULL, WNOHANG);
    if (!cgroup_remove(&s->cgroups, box->cgroup))
        return false;
    tree_remove(s->boxes, box->plan.id);
    slots_give(&s->maker.slots, box->slot);
    close_fd(&box->pidfd);
    close_fd(&box->link);
    for (struct box **at = &s->list; *at; at = &(*at)->next)
        if (*at == box) {
            *at = box->next;
            break;
        }
    s->box_count--;
    free(box);
    return true;
}

int box_add_spares(struct spawner *s, struct box *box, unsigned count) {
    int fds[FDIO_MAX_FDS];
    size_t n = 0;
    uint8_t frame[64], each = s->cgroups.mode == CGROUP_V2 ? 3 : 2, made = 0;
    for (; made < count && made < CGROUP_SPARES && box->spares < 4096; made++) {
        struct cgroup_spare spare;
        if (cgroup_add_spare(&s->cgroups, box->cgroup, box->spares, &spare) < 0)
            break;
        box->spares++;
        fds[n++] = spare.procs;
        fds[n++] = spare.freeze;
        if (spare.kill >= 0)
            fds[n++] = spare.kill;
    }
    struct msg_spares m = {.count = made, .each = each};
    struct frame_head head = {.type = MSG_SPARES, .flags = (uint16_t)n};
    size_t len = msg_encode(frame, sizeof(frame), &head, &m);
    int r = send_fds(box->link, frame, len, fds, n);
    while (n)
        close(fds[--n]);
    return r;
}

/* Refused name lookups show as datagrams to a port nobody listens on. */
static uint64_t refused_datagrams(struct spawner *s, const struct box *box) {
    char path[48], text[4096];
    snprintf(path, sizeof(path), "%d/net/snmp", (int)box->pid);
    if (read_file_at(s->proc, path, text, sizeof(text)) <= 0)
        return 0;
    const char *names = strstr(text, "Udp: ");
    const char *values = names ? strstr(names + 5, "\nUdp: ") : NULL;
    unsigned long long in, none;
    return values && sscanf(values + 6, "%llu %llu", &in, &none) == 2 ? none : 0;
}

void box_facts(struct spawner *s, struct box *box, struct plan_facts *ret) {
    *ret = (struct plan_facts){.drifted = image_stale(&s->image, s->host) || box->drifted};
    cgroup_facts(&s->cgroups, box->cgroup, ret);
    ret->lookups_refused = refused_datagrams(s, box);
}

static uint64_t number_after(const char *text, const char *key) {
    const char *at = strstr(text, key);
    return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/* Is that pid still pid 1 of the box that lives in this id range? Pids are reused, ranges are not. */
static bool is_box(struct spawner *s, pid_t pid, uint32_t slot) {
    char path[32], text[4096];
    snprintf(path, sizeof(path), "%d/status", (int)pid);
    if (pid <= 0 || read_file_at(s->proc, path, text, sizeof(text)) <= 0)
        return false;
    const char *ns = strstr(text, "\nNSpid:");
    const char *end = ns ? strchr(ns + 1, '\n') : NULL;
    bool first = end && end[-1] == '1' && end[-2] == '\t';
    return first && number_after(text, "\nUid:\t") == slots_first(&s->maker.slots, slot);
}

static void adopt(struct spawner *s, const char *id) {
    char path[64], text[1024] = "", pid_text[32] = "";
    struct plan plan = {0};
    snprintf(plan.id, sizeof(plan.id), "%s", id);
    snprintf(path, sizeof(path), "%s/box", id);
    if (read_file_at(s->boxes, path, text, sizeof(text)) <= 0) {
        tree_remove(s->boxes, id); /* it stopped before it had anything */
        return;
    }
    snprintf(path, sizeof(path), "%s/pid", id);
    read_file_at(s->boxes, path, pid_text, sizeof(pid_text));
    plan.linger = number_after(text, "linger=");
    struct box *box = box_new(s, &plan);
    if (!box)
        return;
    box->slot = (uint32_t)number_after(text, "slot=");
    box->cgroup = number_after(text, "cgroup=");
    box->spares = 2048; /* numbers below may be in use */
    box->pid = (pid_t)strtol(pid_text, NULL, 10);
    if (is_box(s, box->pid, box->slot))
        box->pidfd = pidfd_open(box->pid, 0);
    box->dead = box->pidfd < 0;
    const char *key = strstr(text, "image=");
    if (key)
        snprintf(box->image_key, sizeof(box->image_key), "%.16s", key + 6);
    box->drifted = strcmp(box->image_key, s->image.key) != 0;
    slots_mark(&s->maker.slots, box->slot);
    box_enlist(s, box);
}

static void sweep_cgroup(uint64_t number, void *arg) {
    struct spawner *s = arg;
    if (number >= s->cgroups.next)
        s->cgroups.next = number + 1;
    for (struct box *b = s->list; b; b = b->next)
        if (b->cgroup == number)
            return;
    cgroup_remove(&s->cgroups, number);
}

void boxes_adopt(struct spawner *s) {
    int fd = openat(s->boxes, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *e; d && (e = readdir(d));)
        if (id_valid(e->d_name, strlen(e->d_name), 'm'))
            adopt(s, e->d_name);
    if (d)
        closedir(d);
    cgroups_each(&s->cgroups, sweep_cgroup, s);
}
