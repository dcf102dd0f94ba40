#include "spawn/make/userns.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/sched.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/wire/plan.h"

uint32_t slots_first(const struct slots *s, uint32_t slot) {
    return s->shared ? s->base : s->base + slot * SLOT_IDS;
}

void slots_mark(struct slots *s, uint32_t slot) {
    if (slot < SLOT_MAX)
        s->taken[slot / 64] |= 1ull << (slot % 64);
}

void slots_avoid(struct slots *s, const char *ranges) {
    unsigned long long first, count;
    for (const char *line = ranges; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *colon = strpbrk(line, ":\n");
        if (!colon || *colon != ':' || sscanf(colon, ":%llu:%llu", &first, &count) != 2)
            continue;
        for (uint32_t slot = 0; slot < s->count; slot++) {
            uint64_t at = slots_first(s, slot);
            if (first <= at ? at - first < count : first - at < SLOT_IDS && count)
                slots_mark(s, slot);
        }
    }
}

/*
 * Each slot (id range) has one locked file. The lock belongs to the open file, so it moves with the
 * descriptor. The guest holds it, but even a hostile guest cannot write it or reach other locks.
 */
#define LOCKS "carrel-uids"

static int open_lock(const struct slots *s, uint32_t slot, int flags, char name[32]) {
    snprintf(name, 32, LOCKS "/%" PRIu32, slot);
    int fd DEFER_CLOSE = openat(s->lock_dir, name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return -errno;
    return TAKE_FD(fd);
}

static int lock_slot(const struct slots *s, uint32_t slot) {
    char name[32];
    struct stat st;
    mkdirat(s->lock_dir, LOCKS, 0700);
    for (;;) {
        int fd DEFER_CLOSE = open_lock(s, slot, O_RDONLY | O_CREAT, name);
        if (fd < 0 || fstat(fd, &st) < 0)
            return fd < 0 ? fd : -errno;
        if (st.st_nlink) /* otherwise the file was deleted after it was opened */
            return TAKE_FD(fd);
    }
}

/* Removes the lock file of a slot. Only the holder of the lock may do that. */
static void unlock_slot(const struct slots *s, uint32_t slot) {
    char name[32];
    int fd DEFER_CLOSE = open_lock(s, slot, O_RDONLY, name);
    if (fd >= 0)
        unlinkat(s->lock_dir, name, 0);
}

void slots_give(struct slots *s, uint32_t slot) {
    if (slot >= SLOT_MAX)
        return;
    s->taken[slot / 64] &= ~(1ull << (slot % 64));
    if (!s->shared)
        unlock_slot(s, slot);
}

void slots_close(struct slots *s) {
    unlinkat(s->lock_dir, LOCKS, AT_REMOVEDIR); /* succeeds only when no lock is left */
}

int slots_take(struct slots *s, uint32_t *ret_slot, int *ret_lock, struct err *err) {
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t slot = (s->next + i) % s->count;
        if (s->taken[slot / 64] & 1ull << (slot % 64))
            continue;
        int lock = s->shared ? -1 : lock_slot(s, slot);
        if (lock < 0 && !s->shared) {
            if (lock == -EAGAIN || lock == -EACCES)
                continue;
            return err_num(err, lock, "cannot lock uid range %u", slot);
        }
        slots_mark(s, slot);
        s->next = slot + 1;
        *ret_slot = slot;
        *ret_lock = lock;
        return 0;
    }
    return err_set(err, ERR_LIMIT, "all %u uid ranges for machines are in use", s->count);
}

static int write_map(int proc, pid_t pid, const char *name, const char *map) {
    char path[64];
    snprintf(path, sizeof(path), "%d/%s", (int)pid, name);
    return write_file_at(proc, path, map);
}

static int open_userns(int proc, pid_t pid) {
    char path[64];
    snprintf(path, sizeof(path), "%d/ns/user", (int)pid);
    int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/*
 * Runs in the waiting process. It uses only calls that cannot fail, because it shares errno with
 * its parent.
 */
static int wait_for_end(void *parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == *(pid_t *)parent)
        pause();
    return 0;
}

/*
 * Starts a process in new namespaces that only waits, because a new namespace needs a process. It
 * shares memory and descriptors with the spawner, because copying them would cost more with every
 * box.
 */
static pid_t hold(uint64_t flags) {
    static uint8_t stack[16384] __attribute__((aligned(16)));
    static pid_t parent;
    parent = getpid();
    pid_t pid = clone(wait_for_end, stack + sizeof(stack),
                      (int)flags | CLONE_VM | CLONE_FILES | SIGCHLD, &parent);
    return pid < 0 ? -errno : pid;
}

/*
 * Like hold(), but the user `owner` owns the new namespaces: the creator of a user namespace owns
 * it. The process keeps its capabilities, as in act_as().
 */
static pid_t hold_as(uid_t owner, uint64_t flags) {
    if (owner == geteuid())
        return hold(flags);
    prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP);
    if (syscall(SYS_setresuid, -1, owner, -1) < 0)
        return -errno;
    pid_t pid = hold(flags);
    return syscall(SYS_setresuid, -1, 0, -1) < 0 ? -errno : pid;
}

static void userns_add(struct id_list *ids, uint32_t inside, uint32_t outside, uint32_t count) {
    if (count)
        ids->list[ids->count++] = (struct id_extent){inside, outside, count};
}

struct id_map id_map_plain(uint32_t first) {
    struct id_map map = {0};
    userns_add(&map.uids, 0, first, SLOT_IDS);
    map.gids = map.uids;
    return map;
}

uint32_t id_shared(uint32_t id, uint32_t first) {
    return id == ID_BOX_USER ? 0 : first + id;
}

struct id_map id_map_shared(uint32_t first) {
    struct id_map map = {0};
    userns_add(&map.uids, 0, first, 1000);
    userns_add(&map.uids, 1000, ID_NEST_USER, 1);
    userns_add(&map.uids, 1001, first + 1001, SLOT_IDS - 1001);
    map.gids = map.uids;
    return map;
}

struct id_map id_map_nest(uint32_t first) {
    struct id_map map = {0};
    userns_add(&map.uids, first, first, SLOT_IDS);
    userns_add(&map.uids, ID_NEST_USER, 0, 1);
    map.gids = map.uids;
    return map;
}

struct id_list id_list_swap(uint32_t owner, uint32_t first) {
    struct id_list ids = {0};
    uint32_t low = owner < 1000 ? owner : 1000, high = owner < 1000 ? 1000 : owner;
    if (owner == 1000) {
        userns_add(&ids, 0, first, SLOT_IDS);
        return ids;
    }
    userns_add(&ids, 0, first, low);
    if (owner >= SLOT_IDS) {
        userns_add(&ids, 1001, first + 1001, SLOT_IDS - 1001);
        userns_add(&ids, owner, first + ID_BOX_USER, 1);
        return ids;
    }
    userns_add(&ids, low, first + high, 1);
    userns_add(&ids, low + 1, first + low + 1, high - low - 1);
    userns_add(&ids, high, first + low, 1);
    userns_add(&ids, high + 1, first + high + 1, SLOT_IDS - high - 1);
    return ids;
}

struct id_list id_list_one(uint32_t owner, uint32_t first) {
    struct id_list ids = {0};
    userns_add(&ids, owner, first + ID_BOX_USER, 1);
    return ids;
}

static int write_ids(int proc, pid_t pid, const char *name, const struct id_list *ids) {
    char bytes[64 * ID_EXTENTS];
    size_t n = 0;
    for (unsigned i = 0; i < ids->count && i < ID_EXTENTS; i++)
        n += (size_t)snprintf(bytes + n, sizeof(bytes) - n, "%u %u %u\n", ids->list[i].inside,
                              ids->list[i].outside, ids->list[i].count);
    return write_map(proc, pid, name, bytes);
}

int userns_new(int proc, uid_t owner, const struct id_map *map) {
    /*
     * act_as() made the spawner undumpable: then only the host's root could write the id maps of
     * its children.
     */
    prctl(PR_SET_DUMPABLE, 1);
    pid_t pid = hold_as(owner, CLONE_NEWUSER);
    if (pid < 0)
        return pid;
    int r = write_ids(proc, pid, "uid_map", &map->uids);
    if (r == 0)
        r = write_ids(proc, pid, "gid_map", &map->gids);
    if (r == 0)
        r = open_userns(proc, pid);
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return r;
}

/* The id map of a namespace below the nest can be written only by a process in the nest. */
int userns_new_in(int proc, int nest, const struct id_map *map) {
    int ends[2], r = -EIO;
    struct fd_message got DEFER(fd_message_close) = {0};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0) {
        r = setns(nest, CLONE_NEWUSER) < 0 ? -errno : userns_new(proc, geteuid(), map);
        send_fds(ends[1], &r, sizeof(r), &r, r >= 0);
        _exit(0);
    }
    close(ends[1]);
    if (pid < 0)
        r = -errno;
    else if (recv_fds(ends[0], &r, sizeof(r), &got) < 0)
        r = -EIO;
    close(ends[0]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return got.nfds == 1 ? TAKE_FD(got.fds[0]) : r < 0 ? r : -EIO;
}
