/* One box: creates it from a plan, and removes all its resources when its guest is dead. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/wire/msg.h"
#include "spawn/affinity.h"
#include "spawn/disk/layers.h"
#include "spawn/disk/saved.h"
#include "spawn/disk/tree.h"
#include "spawn/make/making.h"
#include "spawn/make/vm_net.h"
#include "spawn/rootless.h"
#include "spawn/spawner.h"
#include "spawn/vm/boot.h"
#include "spawn/vm/memory.h"

/*
 * SPARES_MAX: number of command cgroups after which a guest gets no more. The table of the guest
 * cannot hold that many.
 */
enum { CLEAN_TRIES = 50, SPARES_MAX = 1024 };

/* A resource limit that this host cannot enforce is refused, never silently ignored. */
int limits_check(const struct spawner *s, const struct plan *plan, struct err *err) {
    const struct limits_told asked = {.mem_bytes = plan->mem_bytes,
                                      .disk_bytes = plan->disk_bytes,
                                      .pids = plan->pids,
                                      .cpu_milli = plan->cpu_milli,
                                      .lifetime_ms = plan->deadline_ms};
    const struct {
        const char *name;
        uint64_t wanted;
        bool missing;
    } rows[] = {
        {"memory", plan->mem_bytes, s->cgroups.memory < 0},
        {"cpu", plan->cpu_milli, s->cgroups.cpu < 0},
        {"process", plan->pids, s->cgroups.pids < 0},
        {"disk", plan->disk_bytes, s->maker.tmpfs_bare},
    };
    if (limits_in_range(&asked, err) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (rows[i].wanted && rows[i].missing) {
            err_set(err, ERR_UNSUPPORTED, "this host cannot enforce a %s limit", rows[i].name);
            return err_remedy(err, "leave the limit out, or see: carrel doctor");
        }
    return 0;
}

static int box_check(const struct spawner *s, const struct plan *plan, size_t fds,
                     struct err *err) {
    if (limits_check(s, plan, err) < 0)
        return -1;
    if (strcmp(plan->image, "host") != 0 && !image_id_valid(plan->image))
        return err_set(err, ERR_NOT_FOUND, "image '%s' does not exist", plan->image);
    if (fds != plan->grant_count)
        return err_set(err, ERR_INVALID,
                       "the daemon's request to create a machine is malformed: it has %zu "
                       "descriptors for %zu granted directories",
                       fds, plan->grant_count);
    if (s->rootless && plan->disk_bytes > (1ull << 40))
        return err_set(err, ERR_UNSUPPORTED, "a disk limit above 1T requires root");
    return 0;
}

/*
 * Checks the layers of a new machine. Layers that were written over an older /usr of the host are
 * used over the current /usr only if the user requests it.
 */
static int check_source(struct spawner *s, const struct plan *plan, struct err *err) {
    const struct box *source = plan->undrifted[0] ? box_find(s, plan->undrifted) : NULL;
    if (!source || !source->drifted)
        return 0;
    err_set(err, ERR_UNSUPPORTED, "the host's packages changed since machine '%s' was created",
            source->id);
    return err_remedy(err, "use --drifted to start the machine with the host's current /usr");
}

struct box *box_new(struct spawner *s, const char *id, uint64_t linger) {
    struct box *box = calloc(1, sizeof(*box));
    if (!box)
        return NULL;
    snprintf(box->id, sizeof(box->id), "%s", id);
    box->linger = linger;
    box->heard = FRAME_DECODER(box->heard_bytes, sizeof(box->heard_bytes));
    box->pidfd = box->link = box->owner = box->netns = box->old_root = -1;
    box->vm_netns = box->vm_tap = -1;
    box->side = 'a';
    memset(box->held, -1, sizeof(box->held));
    snprintf(box->image_key, sizeof(box->image_key), "%s", s->image.key);
    making_home(s, box->home);
    return box;
}

void box_belong(struct box *box, const struct plan *plan) {
    memcpy(box->store, plan->store, sizeof(box->store));
    box->limits.mem_bytes = plan->mem_bytes;
    box->limits.cpu_milli = plan->cpu_milli;
    box->limits.pids = plan->pids;
    box->limits.disk_bytes = plan->disk_bytes;
}

bool box_has_usr(const struct box *box) {
    return box->lent || !image_id_valid(box->image_key);
}

void box_take_image(const struct spawner *s, struct box *box, const char *key) {
    snprintf(box->image_key, sizeof(box->image_key), "%s", key);
    box->lent = image_is_lent(s->store, key);
}

void box_free(struct box *box) {
    close_fd(&box->pidfd);
    close_fd(&box->link);
    close_fd(&box->netns);
    close_fd(&box->vm_netns);
    close_fd(&box->vm_tap);
    close_fd(&box->old_root);
    spaces_close(box->held);
    free(box);
}

static void box_enlist(struct spawner *s, struct box *box) {
    box->serial = ++s->enlisted;
    box->next = s->list;
    s->list = box;
    map_put(&s->by_id, box->id, box);
    s->box_count++;
}

void box_enter(struct box *box, struct making *m) {
    box->pid = m->berth.pid;
    box->born = m->berth.born;
    box->pidfd = TAKE_FD(m->berth.pidfd);
    box->slot = m->berth.root.slot;
    box->upper = m->berth.root.upper;
    box->layer = m->berth.root.layer;
    box->shown_is_known = box->layer == LAYER_FIRST; /* a new box on its image alone */
    box->cgroup = m->berth.cgroup.number;
    box->spares = m->berth.cgroup.spare_count;
    box->link = TAKE_FD(m->link[0]);
}

uint64_t box_due(const struct plan *plan) {
    return plan->deadline_ms ? boot_ms() + plan->deadline_ms + OVERDUE_MS : 0;
}

/*
 * A rootless spawner cannot open the network namespace of a box later, so the box keeps a
 * descriptor of it.
 */
static void keep_netns(const struct spawner *s, struct box *box, const struct making *m) {
    if (s->rootless)
        box->netns = fcntl(m->berth.netns, F_DUPFD_CLOEXEC, 3);
}

/*
 * Notes whether a box may give its network namespace and cgroups to a later one. A box with granted
 * directories may not: it could have passed descriptors of /proc/net or of cgroups through a socket
 * in one of them.
 */
static void note_gifts(const struct spawner *s, struct box *box, const struct plan *plan,
                       const struct making *m) {
    struct stat st;
    if (s->rootless || plan->grant_count)
        return;
    box->gives_cgroups = true;
    if (fstat(m->berth.netns, &st) == 0)
        box->netns_inode = st.st_ino;
}

/*
 * The inode is compared, because a process that is killed early may not have entered the network
 * namespace of its box yet.
 */
void box_return_netns(struct spawner *s, struct box *box) {
    struct stat st;
    int ns = box->held[HELD_NET];
    if (box->netns_inode && ns >= 0 && fstat(ns, &st) == 0 && st.st_ino == box->netns_inode)
        reuse_rest(&s->net, TAKE_FD(box->held[HELD_NET]));
    box->netns_inode = 0;
}

static struct making *begin_from_berth(struct spawner *s, const struct plan *plan, const int *fds,
                                       struct box **ret, struct err *err) {
    struct making *m = making_new();
    struct box *box DEFER_FREE = box_new(s, plan->id, plan->linger);
    if (!m || !box) {
        free(m);
        err_set(err, ERR_LIMIT, "cannot create a machine: the spawner is out of memory");
        return NULL;
    }
    if (making_gather(s, plan, fds, m, err) < 0 || making_order(m, plan, err) < 0) {
        making_undo(s, m);
        return NULL;
    }
    box_enter(box, m);
    if (image_id_valid(plan->image))
        box_take_image(s, box, plan->image);
    layers_enter(s, box, plan);
    box->drifted = box_has_usr(box) && saved_drifted(s, plan->stack);
    box->due_ms = box_due(plan);
    box_belong(box, plan);
    *ret = TAKE(box);
    return m;
}

struct making *box_begin(struct spawner *s, const struct plan *plan, const int *fds,
                         size_t fd_count, struct box **ret, struct err *err) {
    if (box_check(s, plan, fd_count, err) < 0 || check_source(s, plan, err) < 0)
        return NULL;
    if (box_find(s, plan->id)) {
        err_set(err, ERR_EXISTS, "machine '%s' already exists", plan->id);
        return NULL;
    }
    struct making *m = ready_take(s, plan, ret);
    bool was_ready = m;
    if (!m)
        m = begin_from_berth(s, plan, fds, ret, err);
    if (!m)
        return NULL;
    s->not_ready += !was_ready;
    keep_netns(s, *ret, m);
    note_gifts(s, *ret, plan, m);
    affinity_begin(s, *ret);
    s->created++;
    box_enlist(s, *ret);
    return m;
}

size_t box_descriptors(const struct making *m, int fds[1 + PLAN_MAX_GRANTS + NETNS_FDS]) {
    size_t n = 0;
    fds[n++] = m->control[0];
    for (size_t i = 0; i < NETNS_FDS && m->doors[i] >= 0; i++)
        fds[n++] = m->doors[i];
    for (size_t i = 0; i < PLAN_MAX_GRANTS; i++)
        if (m->uppers[i] >= 0)
            fds[n++] = m->uppers[i];
    return n;
}

int box_settle(struct spawner *s, struct box *box, const struct plan *plan, struct making *m) {
    struct err err;
    int r = 0;
    if (!m->is_ready &&
        (making_record(s, m, box, box->id, &err) < 0 ||
         (plan->stack[0] && making_keep_stack(s, box, box->layer, plan->stack, &err) < 0) ||
         making_describe(s, m, plan, &err) < 0 || making_release(m, &err) < 0))
        r = -1;
    if (r < 0) {
        log_line(LOG_ERROR, "spawn", "%s", err.text);
        making_tell(m, &err);
    }
    making_free(m);
    return r;
}

struct box *box_find(struct spawner *s, const char *id) {
    return map_get(&s->by_id, id);
}

int box_missing(const struct spawner *s, const char *id, struct err *err) {
    for (size_t i = 0; i < s->unread_count; i++)
        if (strcmp(s->unread[i], id) == 0)
            return err_set(err, ERR_BUSY, "the spawner cannot read the record of machine '%s'", id);
    return err_set(err, ERR_NOT_FOUND, "machine '%s' does not exist", id);
}

/* Asks the guest to end its box, for boxes that the spawner may not kill. */
static void ask_to_end(const struct box *box) {
    uint8_t frame[32];
    size_t n = msg_encode(frame, sizeof(frame), &(struct frame_head){.type = MSG_SHUTDOWN}, NULL);
    if (n && box->link >= 0)
        (void)!send(box->link, frame, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/*
 * Killing pid 1 kills everything in its pid namespace, except frozen processes. Without root, a box
 * of an earlier spawner is in the user namespace of that spawner, where this spawner may not send
 * signals.
 */
void box_kill(struct spawner *s, struct box *box) {
    bool first = !box->ending;
    box->ending = true;
    if (box->pidfd < 0)
        return;
    close_fd(&box->netns);
    close_fd(&box->vm_netns);
    close_fd(&box->vm_tap);
    if (first)
        spaces_hold(box->pidfd, s->proc, box->pid, box->held);
    if (pidfd_send_signal(box->pidfd, SIGKILL, NULL, 0) == 0)
        return;
    if (errno == EPERM && rootless_end(s, box->pidfd) < 0)
        ask_to_end(box);
    /* the kill failed: these may be namespaces of another process that got the same pid */
    spaces_close(box->held);
}

/*
 * Removes the directory of a box in $CARREL_RUN/boxes. Removes the known files by name, and lists
 * the directory only if other files remain.
 */
static int remove_place(struct spawner *s, struct box *box) {
    static const char *const names[] = {"box", "guest.sock", "admin.sock"};
    const char *id = box->id;
    char path[64];
    if (box->left_place)
        return 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        snprintf(path, sizeof(path), "%s/%s", id, names[i]);
        unlinkat(s->boxes, path, 0);
    }
    int r = unlinkat(s->boxes, id, AT_REMOVEDIR) == 0 ? 0 : tree_remove(s->boxes, id);
    box->left_place = r == 0;
    return r;
}

/*
 * True if a box other than `but` uses this upper (writable layer). A forked machine may use it, and
 * then it must not be deleted.
 */
static bool is_used(const struct spawner *s, uint32_t upper, const struct box *but) {
    for (const struct box *b = s->list; b; b = b->next) {
        if (b == but || b->elsewhere)
            continue;
        if (b->upper == upper)
            return true;
        for (size_t i = 0; i < b->disk_count; i++)
            if (b->disks[i].upper == upper)
                return true;
    }
    return false;
}

static void bury_uppers(struct spawner *s, struct box *box) {
    if (box->elsewhere) /* the uppers are in another store, which has its own numbers */
        return;
    if (!is_used(s, box->upper, box))
        uppers_bury(&s->maker.uppers, box->upper);
    for (size_t i = 0; i < box->disk_count; i++)
        if (box->disks[i].upper && !is_used(s, box->disks[i].upper, box))
            uppers_bury(&s->maker.uppers, box->disks[i].upper);
    box->upper = 0;
    box->disk_count = 0;
}

/* Tries once to keep the cgroups of a dead box for a later one. */
static bool give_cgroups(struct spawner *s, struct box *box) {
    bool may = box->gives_cgroups;
    box->gives_cgroups = false;
    return may && remove_place(s, box) == 0 && cgroup_keep(&s->cgroups, box->cgroup);
}

bool box_clean(struct spawner *s, struct box *box) {
    if (!box->gave_cgroups)
        box->gave_cgroups = give_cgroups(s, box);
    if (!box->gave_cgroups && !cgroup_remove(&s->cgroups, box->cgroup))
        return false;
    bury_uppers(s, box);
    /*
     * Retry to remove the directory a limited number of times; the next spawner removes the rest.
     */
    if (remove_place(s, box) < 0 && box->clean_tries++ < CLEAN_TRIES)
        return false;
    slots_give(&s->maker.slots, box->slot);
    for (struct box **at = &s->list; *at; at = &(*at)->next)
        if (*at == box) {
            *at = box->next;
            break;
        }
    map_take(&s->by_id, box->id);
    s->box_count--;
    vm_memory_box_gone(s, box);
    box_free(box);
    return true;
}

int box_add_spares(struct spawner *s, struct box *box, unsigned count) {
    int fds[FDIO_MAX_FDS];
    size_t n = 0;
    uint8_t frame[64], each = s->cgroups.mode == CGROUP_V2 ? 3 : 2, made = 0;
    for (; made < count && made < CGROUP_SPARES && box->spares < SPARES_MAX; made++) {
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

static int open_netns(const struct spawner *s, const struct box *box) {
    char path[32];
    snprintf(path, sizeof(path), "%d/ns/net", (int)box->pid);
    int ns = box->netns >= 0 ? fcntl(box->netns, F_DUPFD_CLOEXEC, 3)
                             : openat(s->proc, path, O_RDONLY | O_CLOEXEC);
    return ns < 0 ? -errno : ns;
}

int box_listen(struct spawner *s, struct box *box, int ret[NETNS_FDS], struct err *err) {
    int vm = vm_netns(s, box), ns DEFER_CLOSE = vm < 0 ? open_netns(s, box) : -1;
    int r = vm >= 0  ? vm_net_listen(&s->net, vm, ret)
            : ns < 0 ? ns
                     : netns_listen(&s->net, ns, netns_loopback, ret);
    if (r == -EADDRINUSE)
        return err_set(
            err, ERR_BUSY,
            "a program in machine '%s' already listens on a port that Carrel's network gate needs",
            box->id);
    return r < 0
               ? err_num(err, r, "cannot open the sockets of Carrel's network gate in machine '%s'",
                         box->id)
               : 0;
}

int box_dial(struct spawner *s, struct box *box, uint16_t port, struct err *err) {
    int vm = vm_netns(s, box), ns DEFER_CLOSE = vm < 0 ? open_netns(s, box) : -1;
    int fd = vm >= 0  ? vm_net_dial(&s->net, vm, port)
             : ns < 0 ? ns
                      : netns_dial(&s->net, ns, netns_loopback, port);
    if (fd == -ECONNREFUSED)
        return err_set(err, ERR_BUSY, "no program in machine '%s' listens on port %u", box->id,
                       port);
    return fd < 0 ? err_num(err, fd, "cannot connect to port %u of machine '%s'", port, box->id)
                  : fd;
}

/* Refused DNS lookups are counted as datagrams to a closed port. */
uint64_t box_lookups_refused(struct spawner *s, const struct box *box) {
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
    bool drifts = box_has_usr(box) && image_stale(&s->image, s->host);
    *ret = (struct plan_facts){.drifted = drifts || box->drifted};
    cgroup_facts(&s->cgroups, box->cgroup, ret);
    ret->lookups_refused = box_lookups_refused(s, box);
}

static uint64_t number_after(const char *text, const char *key) {
    const char *at = strstr(text, key);
    return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/*
 * True if the process is pid 1 of the recorded box. Pids are reused, and without root so are id
 * ranges, but not a pid together with its start time.
 */
static bool is_box(struct spawner *s, const struct box *box, int pidfd) {
    char path[32], text[4096];
    snprintf(path, sizeof(path), "%d/status", (int)box->pid);
    if (read_file_at(s->proc, path, text, sizeof(text)) <= 0)
        return false;
    const char *ns = strstr(text, "\nNSpid:");
    const char *end = ns ? strchr(ns + 1, '\n') : NULL;
    bool first = end && end[-1] == '1' && end[-2] == '\t';
    return first && number_after(text, "\nUid:\t") == slots_first(&s->maker.slots, box->slot) &&
           process_born(s->proc, box->pid, pidfd) == box->born;
}

/*
 * Opens pid 1 of a recorded box. Inspects the process by pid; its pidfd, opened before, proves that
 * the pid was not reused meanwhile.
 */
static int find_init(struct spawner *s, const struct box *box) {
    int pidfd DEFER_CLOSE = box->pid > 0 ? pidfd_open(box->pid, 0) : -1;
    if (pidfd < 0 || !is_box(s, box, pidfd))
        return -1;
    bool gone = poll(&(struct pollfd){.fd = pidfd, .events = POLLIN}, 1, 0) != 0;
    return gone ? -1 : TAKE_FD(pidfd);
}

/* Connects to the guest after a restart of the spawner: the guest will ask for command cgroups. */
static int reconnect(struct spawner *s, const char *id) {
    struct sockaddr_un a = box_socket(s, id, "admin.sock");
    int fd DEFER_CLOSE = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || guest_greet(fd) < 0)
        return -1;
    return TAKE_FD(fd);
}

/* Reads the disks of a box from the lines "disk=m-4kq2x7w3n5ab:0" of its record, in their order. */
static void adopt_disks(struct box *box, const char *text) {
    for (const char *at = text; (at = strstr(at, "disk=")) && box->disk_count < LAYERS_DISKS_MAX;) {
        at += strlen("disk=");
        if (!id_valid(at, ID_SIZE - 1, 'm') && !id_valid(at, ID_SIZE - 1, 'd'))
            return;
        memcpy(box->disks[box->disk_count].id, at, ID_SIZE - 1);
        box->disks[box->disk_count++].upper = (uint32_t)number_after(at, ":");
    }
}

static void copy_word(const char *text, const char *key, char *to, size_t size) {
    const char *at = strstr(text, key);
    at = at ? at + strlen(key) : "";
    snprintf(to, size, "%.*s", (int)strcspn(at, "\n"), at);
}

/*
 * Returns the deadline in a box's record. Records of older spawners use the monotonic clock, which
 * stops while the host sleeps.
 */
static uint64_t adopt_due(const char *text) {
    uint64_t until = number_after(text, "\nuntil="), due = number_after(text, "\ndue=");
    if (until || !due)
        return until;
    return due + boot_ms() - monotonic_ms();
}

static void adopt_owner(const struct spawner *s, struct box *box, const char *text) {
    char mine[48];
    copy_word(text, "\nstore=", box->store, sizeof(box->store));
    box->limits.mem_bytes = number_after(text, "\nmem=");
    box->limits.cpu_milli = number_after(text, "\ncpu=");
    box->limits.pids = number_after(text, "\npids=");
    box->limits.disk_bytes = number_after(text, "\ndisk_bytes=");
    copy_word(text, "\nhome=", box->home, sizeof(box->home));
    making_home(s, mine);
    box->elsewhere = box->home[0] && strcmp(box->home, mine) != 0;
}

static bool is_record(const char *text) {
    static const char *const needed[] = {"slot=", "\ncgroup=", "\nlinger=", "\nborn=", "\npid="};
    for (size_t i = 0; i < sizeof(needed) / sizeof(*needed); i++)
        if (!strstr(text, needed[i]))
            return false;
    return true;
}

/*
 * Reads the record of a box. 1: `text` is the record. 0: there is no record, since the box was
 * never complete. -1: the record cannot be read, so the box may be alive.
 */
static int read_record(const struct spawner *s, const char *id, char *text, size_t size) {
    char path[64];
    snprintf(path, sizeof(path), "%s/box", id);
    ssize_t n = read_file_at(s->boxes, path, text, size);
    if (n == -ENOENT)
        return 0;
    return n > 0 && is_record(text) ? 1 : -1;
}

/*
 * True if the guest of the box is alive: then it listens on its socket, even if the record of the
 * box is damaged.
 */
static bool is_listening(struct spawner *s, const char *id) {
    struct sockaddr_un a = box_socket(s, id, "admin.sock");
    int fd DEFER_CLOSE = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 ||
           (errno != ENOENT && errno != ECONNREFUSED);
}

static void note_unread(struct spawner *s, const char *id) {
    void *more = realloc(s->unread, (s->unread_count + 1) * sizeof(*s->unread));
    log_line(
        LOG_ERROR, "spawn",
        "the record of machine '%s' is damaged: the machine keeps running, but cannot be managed",
        id);
    if (!more) {
        s->unlisted = true;
        return;
    }
    s->unread = more;
    snprintf(s->unread[s->unread_count++], ID_SIZE, "%s", id);
}

static void adopt(struct spawner *s, const char *id) {
    char text[2048] = "";
    int r = read_record(s, id, text, sizeof(text));
    if (r < 0 && is_listening(s, id))
        note_unread(s, id);
    else if (r <= 0)
        tree_remove(s->boxes, id); /* the box was never complete, or ended long ago */
    struct box *box = r > 0 ? box_new(s, id, number_after(text, "linger=")) : NULL;
    if (!box)
        return;
    box->slot = (uint32_t)number_after(text, "slot=");
    box->upper = (uint32_t)number_after(text, "upper=");
    box->cgroup = number_after(text, "cgroup=");
    box->due_ms = adopt_due(text);
    adopt_owner(s, box, text);
    box->spares = cgroup_next_spare(&s->cgroups, box->cgroup);
    box->pid = (pid_t)number_after(text, "pid=");
    box->born = number_after(text, "born=");
    box->pidfd = find_init(s, box);
    box->dead = box->pidfd < 0;
    if (!box->dead)
        box->link = reconnect(s, id);
    box->layer = (uint32_t)number_after(text, "layer=");
    box->next_layer = (uint32_t)number_after(text, "next=");
    box->side = strstr(text, "side=b") ? 'b' : 'a';
    adopt_disks(box, text);
    if (strstr(text, "image="))
        copy_word(text, "image=", box->image_key, sizeof(box->image_key));
    box->lent = image_is_lent(s->store, box->image_key);
    box->drifted = box_has_usr(box) && ((!box->lent && strcmp(box->image_key, s->image.key) != 0) ||
                                        number_after(text, "drifted="));
    slots_mark(&s->maker.slots, box->slot);
    box_enlist(s, box);
    layers_recover(s, box);
    if (!box->dead && ready_is_name(id))
        box_kill(s, box); /* nobody uses a ready box of an earlier spawner */
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
    if (s->unread_count || s->unlisted)
        return;
    for (struct box *b = s->list; b; b = b->next)
        if (b->cgroup == number)
            return;
    if (!cgroup_remove(&s->cgroups, number))
        sweep->left = true;
}

/* The cgroup of a killed process cannot be removed for a moment, so this retries. */
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
    return is_used(arg, upper, NULL);
}

/* Unused files are removed only if the records of all boxes were read. */
void boxes_adopt(struct spawner *s) {
    DIR *d DEFER(dir_close) = dir_list(s->boxes, ".");
    errno = d ? 0 : errno;
    for (struct dirent *e; d && (e = readdir(d)); errno = 0)
        if (id_valid(e->d_name, strlen(e->d_name), 'm') || ready_is_name(e->d_name))
            adopt(s, e->d_name);
    if (errno) {
        s->unlisted = true;
        log_line(LOG_ERROR, "spawn",
                 "list the directory of boxes: %s; unused files of machines are not deleted",
                 strerror(errno));
    }
    for (struct box *b = s->list; b; b = b->next)
        vm_memory_adopt(s, b);
    boxes_sweep(s);
    if (!s->unread_count && !s->unlisted)
        uppers_sweep(&s->maker.uppers, has_box, s);
}
