/* One box: from a plan to a running guest, and from a dead guest to nothing. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
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
#include "spawn/spawner.h"
#include "spawn/tree.h"

enum { CLEAN_TRIES = 50 };

/* What goes into making one box; whatever is still here at the end is closed. */
struct making {
    struct berth berth;
    int listener; /* where hosts connect to the guest */
    int admin;    /* where the next spawner does */
    int control[2], link[2];
    int grants[PLAN_MAX_GRANTS], uppers[PLAN_MAX_GRANTS];
    bool has_berth;
};

static void making_init(struct making *m) {
    *m = (struct making){
        .berth = BERTH_NONE, .listener = -1, .admin = -1, .control = {-1, -1}, .link = {-1, -1}};
    for (size_t i = 0; i < PLAN_MAX_GRANTS; i++)
        m->grants[i] = m->uppers[i] = -1;
}

static void making_close(struct making *m) {
    int *fds[] = {&m->listener,   &m->admin,   &m->control[0],
                  &m->control[1], &m->link[0], &m->link[1]};
    for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++)
        close_fd(fds[i]);
    for (size_t i = 0; i < PLAN_MAX_GRANTS; i++) {
        close_fd(&m->grants[i]);
        close_fd(&m->uppers[i]);
    }
    berth_close(&m->berth);
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
    const int enforced[] = {s->cgroups.memory, s->cgroups.cpu, s->cgroups.pids,
                            s->maker.tmpfs_bare ? -1 : 0};
    for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
        uint64_t value = *(const uint64_t *)((const char *)plan + limits[i].offset);
        if (value == 0)
            continue;
        if (value < limits[i].min || value > limits[i].max)
            return err_set(err, ERR_INVALID,
                           "a %s limit of %" PRIu64 " is out of range (%" PRIu64 " to %" PRIu64 ")",
                           limits[i].name, value, limits[i].min, limits[i].max);
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
    if (!s->maker.tmpfs_bare)
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

/*
 * What exists is written down before the box may begin; whatever happens later, the next spawner
 * finds it here.
 */
static int write_down(struct spawner *s, const struct box *box, struct err *err) {
    char text[512];
    int n = snprintf(text, sizeof(text),
                     "slot=%" PRIu32 "\nupper=%" PRIu32 "\ncgroup=%" PRIu64 "\nlinger=%" PRIu64
                     "\nimage=%s\npid=%d\n",
                     box->slot, box->upper, box->cgroup, (uint64_t)box->linger, s->image.key,
                     (int)box->pid);
    if (mkdirat(s->boxes, box->id, 0700) < 0)
        return err_sys(err, "make machine '%s'", box->id);
    int dir DEFER_CLOSE = openat(s->boxes, box->id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int file DEFER_CLOSE =
        dir < 0 ? -1 : openat(dir, "box", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0 || write(file, text, (size_t)n) != n)
        return err_sys(err, "write down machine '%s'", box->id);
    return 0;
}

static struct sockaddr_un socket_name(const struct spawner *s, const char *id, const char *name) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/%s/%s", s->boxes, id, name);
    return a;
}

/* The guest has these sockets already; they get names now, which only the host can see. */
static int name_listeners(struct spawner *s, const struct making *m, const char *id,
                          struct err *err) {
    struct sockaddr_un hosts = socket_name(s, id, "guest.sock"),
                       admin = socket_name(s, id, "admin.sock");
    if (bind(m->listener, (struct sockaddr *)&hosts, sizeof(hosts)) < 0 ||
        listen(m->listener, 16) < 0 ||
        bind(m->admin, (struct sockaddr *)&admin, sizeof(admin)) < 0 || listen(m->admin, 4) < 0)
        return err_sys(err, "listen for the guest");
    return 0;
}

/* The host speaks first; said before the guest exists, it costs nobody a wait. */
static int greet(int link) {
    uint8_t frame[64];
    struct msg_hello hello = {.version = MSG_VERSION, .features = MSG_FEATURE_FDS};
    size_t n = msg_encode(frame, sizeof(frame), &(struct frame_head){.type = MSG_HELLO}, &hello);
    /* A guest found again may be dying this moment: that is no reason to end with it. */
    return send(link, frame, n, MSG_NOSIGNAL) == (ssize_t)n ? 0 : -1;
}

static int open_channels(struct making *m, struct err *err) {
    m->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    m->admin = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (m->listener < 0 || m->admin < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, m->control) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, m->link) < 0 ||
        greet(m->link[0]) < 0)
        return err_sys(err, "open channels");
    return 0;
}

static int gather(struct spawner *s, const struct plan *plan, const int *fds, struct making *m,
                  struct err *err) {
    if (pool_take(s, plan, &m->berth, err) < 0)
        return -1;
    m->has_berth = true;
    if (cgroup_limit(&s->cgroups, &m->berth.cgroup, plan, err) < 0 || open_channels(m, err) < 0)
        return -1;
    for (unsigned i = 0; i < plan->grant_count; i++)
        if (rootfs_grant(&s->maker, &m->berth.root, &plan->grants[i], i, fds[i], &m->grants[i],
                         &m->uppers[i], err) < 0)
            return -1;
    return 0;
}

/* The waiting process begins to set up the box with these. */
static int order(const struct making *m, const struct plan *plan, struct err *err) {
    int fds[ORDER_GRANTS + PLAN_MAX_GRANTS] = {[ORDER_CONTROL] = m->control[1],
                                               [ORDER_LISTENER] = m->listener,
                                               [ORDER_ADMIN] = m->admin,
                                               [ORDER_SPAWNER] = m->link[1]};
    struct plan filled = *plan;
    if (!filled.mem_bytes)
        filled.mem_bytes = LIMIT_MEM;
    memcpy(fds + ORDER_GRANTS, m->grants, plan->grant_count * sizeof(int));
    int r = send_fds(m->berth.socket, &filled, child_order_size(plan), fds,
                     ORDER_GRANTS + plan->grant_count);
    if (r == 0)
        return 0;
    return err_num(err, r, "give orders for machine '%s'", plan->id);
}

/* While the child works, everything that must be there before it may become the box. */
static int let_go(struct spawner *s, struct making *m, const struct box *box,
                  const struct plan *plan, struct err *err) {
    struct buf json DEFER(buf_done) = BUF(65536);
    if (write_down(s, box, err) < 0 || name_listeners(s, m, box->id, err) < 0)
        return -1;
    if (describe(s, plan, &json) < 0)
        return err_set(err, ERR_LIMIT, "machine.json is too large");
    if (rootfs_meta(&s->maker, &m->berth.root, json.data, err) < 0)
        return -1;
    if (send(m->berth.socket, "g", 1, MSG_NOSIGNAL) != 1)
        return err_sys(err, "let machine '%s' go", box->id);
    return 0;
}

static void undo(struct spawner *s, struct making *m) {
    if (m->has_berth)
        berth_drop(s, &m->berth);
}

static struct box *box_new(struct spawner *s, const char *id, bool linger) {
    struct box *box = calloc(1, sizeof(*box));
    if (!box)
        return NULL;
    snprintf(box->id, sizeof(box->id), "%s", id);
    box->linger = linger;
    box->pidfd = box->link = box->owner = -1;
    snprintf(box->image_key, sizeof(box->image_key), "%s", s->image.key);
    return box;
}

static void box_enlist(struct spawner *s, struct box *box) {
    box->next = s->list;
    s->list = box;
    s->box_count++;
}

static void enter_books(struct box *box, struct making *m) {
    box->pid = m->berth.pid;
    box->pidfd = TAKE_FD(m->berth.pidfd);
    box->slot = m->berth.root.slot;
    box->upper = m->berth.root.upper;
    box->cgroup = m->berth.cgroup.number;
    box->spares = m->berth.cgroup.spare_count;
    box->link = TAKE_FD(m->link[0]);
}

/* The creator holds its end of the connection already: that is where it hears of a failure. */
static void tell_creator(const struct making *m, const struct err *err) {
    uint8_t frame[512];
    struct msg_error e = {.code = err->code, .text = {err->text, (uint32_t)strlen(err->text)}};
    size_t n = msg_encode(frame, sizeof(frame), &(struct frame_head){.type = MSG_ERROR}, &e);
    if (n)
        (void)!write(m->control[1], frame, n);
}

struct making *box_begin(struct spawner *s, const struct plan *plan, const int *fds,
                         size_t fd_count, struct box **ret, struct err *err) {
    if (check(s, plan, fd_count, err) < 0)
        return NULL;
    if (box_find(s, plan->id)) {
        err_set(err, ERR_EXISTS, "machine '%s' exists", plan->id);
        return NULL;
    }
    struct making *m = malloc(sizeof(*m));
    struct box *box DEFER_FREE = box_new(s, plan->id, plan->linger != 0);
    if (!m || !box) {
        free(m);
        err_set(err, ERR_LIMIT, "out of memory");
        return NULL;
    }
    making_init(m);
    if (gather(s, plan, fds, m, err) < 0 || order(m, plan, err) < 0) {
        undo(s, m);
        making_close(m);
        free(m);
        return NULL;
    }
    enter_books(box, m);
    s->created++;
    box_enlist(s, box);
    *ret = TAKE(box);
    return m;
}

size_t box_descriptors(const struct making *m, int fds[1 + PLAN_MAX_GRANTS]) {
    size_t n = 0;
    fds[n++] = m->control[0];
    for (size_t i = 0; i < PLAN_MAX_GRANTS; i++)
        if (m->uppers[i] >= 0)
            fds[n++] = m->uppers[i];
    return n;
}

int box_settle(struct spawner *s, struct box *box, const struct plan *plan, struct making *m) {
    struct err err;
    int r = let_go(s, m, box, plan, &err);
    if (r < 0) {
        log_line(LOG_ERROR, "spawn", "%s", err.text);
        tell_creator(m, &err);
    }
    making_close(m);
    free(m);
    return r;
}

struct box *box_find(struct spawner *s, const char *id) {
    for (struct box *b = s->list; b; b = b->next)
        if (strcmp(b->id, id) == 0)
            return b;
    return NULL;
}

/* Rootless, a box of an earlier spawner lives in that one's user namespace, where we have no power.
 */
static void ask_to_end(const struct box *box) {
    uint8_t frame[32];
    size_t n = msg_encode(frame, sizeof(frame), &(struct frame_head){.type = MSG_SHUTDOWN}, NULL);
    if (n && box->link >= 0)
        (void)!send(box->link, frame, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* pid 1 takes everything in its pid namespace along, but for what is frozen. */
void box_kill(struct spawner *s, struct box *box) {
    box->ending = true;
    if (box->pidfd >= 0 && pidfd_send_signal(box->pidfd, SIGKILL, NULL, 0) < 0 && errno == EPERM)
        ask_to_end(box);
    cgroup_thaw(&s->cgroups, box->cgroup);
}

bool box_clean(struct spawner *s, struct box *box) {
    if (!cgroup_remove(&s->cgroups, box->cgroup))
        return false;
    uppers_bury(&s->maker.uppers, box->upper);
    box->upper = 0;
    /* Tried again, but not for ever: what cannot be removed now is the next spawner's. */
    if (tree_remove(s->boxes, box->id) < 0 && box->clean_tries++ < CLEAN_TRIES)
        return false;
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

/* Is that pid still pid 1 of the box that lives in this id range? Pids are reused, ranges are not.
 */
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

/* Our way back in after a restart: for the command cgroups the guest will ask for. */
static int reconnect(struct spawner *s, const char *id) {
    struct sockaddr_un a = socket_name(s, id, "admin.sock");
    int fd DEFER_CLOSE = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || greet(fd) < 0)
        return -1;
    return TAKE_FD(fd);
}

static void adopt(struct spawner *s, const char *id) {
    char path[64], text[1024] = "";
    snprintf(path, sizeof(path), "%s/box", id);
    if (read_file_at(s->boxes, path, text, sizeof(text)) <= 0) {
        tree_remove(s->boxes, id); /* it stopped before it had anything */
        return;
    }
    struct box *box = box_new(s, id, number_after(text, "linger=") != 0);
    if (!box)
        return;
    box->slot = (uint32_t)number_after(text, "slot=");
    box->upper = (uint32_t)number_after(text, "upper=");
    box->cgroup = number_after(text, "cgroup=");
    box->spares = 2048; /* numbers below may be in use */
    box->pid = (pid_t)number_after(text, "pid=");
    if (is_box(s, box->pid, box->slot))
        box->pidfd = pidfd_open(box->pid, 0);
    box->dead = box->pidfd < 0;
    if (!box->dead)
        box->link = reconnect(s, id);
    const char *key = strstr(text, "image=");
    if (key)
        snprintf(box->image_key, sizeof(box->image_key), "%.16s", key + 6);
    box->drifted = strcmp(box->image_key, s->image.key) != 0;
    slots_mark(&s->maker.slots, box->slot);
    box_enlist(s, box);
}

struct sweep {
    struct spawner *s;
    bool left;
};

static void sweep_cgroup(uint64_t number, void *arg) {
    struct sweep *sweep = arg;
    struct spawner *s = sweep->s;
    if (number >= s->cgroups.next)
        s->cgroups.next = number + 1;
    for (struct box *b = s->list; b; b = b->next)
        if (b->cgroup == number)
            return;
    if (!cgroup_remove(&s->cgroups, number))
        sweep->left = true;
}

/* A process that was just killed keeps its cgroup busy until it has gone. */
void boxes_sweep(struct spawner *s) {
    struct sweep sweep = {s, true};
    for (int tries = 0; sweep.left && tries < 500; tries++) {
        if (tries)
            usleep(2000);
        sweep.left = false;
        cgroups_each(&s->cgroups, sweep_cgroup, &sweep);
    }
}

static bool has_box(uint32_t upper, void *arg) {
    struct spawner *s = arg;
    for (struct box *b = s->list; b; b = b->next)
        if (b->upper == upper)
            return true;
    return false;
}

void boxes_adopt(struct spawner *s) {
    int fd = openat(s->boxes, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *e; d && (e = readdir(d));)
        if (id_valid(e->d_name, strlen(e->d_name), 'm'))
            adopt(s, e->d_name);
    if (d)
        closedir(d);
    boxes_sweep(s);
    uppers_sweep(&s->maker.uppers, has_box, s);
}
