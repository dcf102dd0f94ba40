#include "spawn/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "base/limits.h"
#include "base/parse.h"
#include "spawn/weaken.h"

enum { FREEZE_TRIES = 64 };

static void group_name(char name[32], uint64_t number) {
    snprintf(name, 32, "b%" PRIu64, number);
}

static int make_group(int dir, const char *name) {
    return mkdirat(dir, name, 0755) < 0 && errno != EEXIST ? -errno : 0;
}

/*
 * Finds the cgroup of the spawner itself in /proc/self/cgroup, which has lines
 * "N:controllers:/path".
 */
static bool own_path(const char *table, const char *controller, char *path, size_t size) {
    char needle[40];
    for (const char *line = table; *line;) {
        size_t len = strcspn(line, "\n");
        char row[512];
        snprintf(row, sizeof(row), "%.*s", (int)len, line);
        line += len + (line[len] == '\n');
        char *names = strchr(row, ':');
        char *where = names ? strchr(names + 1, ':') : NULL;
        if (!where)
            continue;
        *where++ = '\0';
        snprintf(needle, sizeof(needle), ",%s,", controller);
        char list[128];
        snprintf(list, sizeof(list), ",%s,", names + 1);
        if (strstr(list, needle)) {
            snprintf(path, size, "%s", where);
            return true;
        }
    }
    return false;
}

/* Opens the cgroup directory root/MOUNT/OWN/NAME and creates it if needed. */
static int open_base(int root, const char *mount, const char *own, const char *name) {
    char path[700];
    snprintf(path, sizeof(path), "%s%s%s", mount, *own == '/' ? "" : "/", own);
    int at DEFER_CLOSE = openat(root, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at < 0)
        return -errno;
    int r = make_group(at, name);
    if (r < 0)
        return r;
    return dir_open(at, name);
}

static const char *const v1_mounts[][3] = {
    /* a controller of cgroup v1, then the directories where distributions mount it */
    {"memory", "memory", NULL},
    {"cpu", "cpu", "cpu,cpuacct"},
    {"pids", "pids", NULL},
    {"freezer", "freezer", NULL},
};

static int open_v1(int root, const char *table, size_t which, const char *name) {
    char own[512];
    if (!own_path(table, v1_mounts[which][0], own, sizeof(own)))
        return -1;
    for (int i = 1; i < 3 && v1_mounts[which][i]; i++) {
        int fd = open_base(root, v1_mounts[which][i], own, name);
        if (fd >= 0)
            return fd;
        fd = open_base(root, v1_mounts[which][i], "", name);
        if (fd >= 0)
            return fd;
    }
    return -1;
}

/*
 * v1 counts swap and TCP buffers separately from memory. v2 counts TCP buffers as memory and limits
 * swap by itself.
 */
#define MEMSW "memory.memsw.limit_in_bytes"
#define TCP "memory.kmem.tcp.limit_in_bytes"

static bool has_file(int base, const char *name) {
    return base >= 0 && faccessat(base, name, F_OK, 0) == 0;
}

static bool may_use(int root, const char *mount, const char *path) {
    char procs[700];
    snprintf(procs, sizeof(procs), "%s%s/cgroup.procs", *mount ? mount : ".", path);
    return faccessat(root, procs, W_OK, AT_EACCESS) == 0;
}

/*
 * Climbs from the spawner's own cgroup to the highest one that it may use: the root, or a delegated
 * cgroup.
 */
static void climb(int root, const char *mount, char *path) {
    for (size_t len = strlen(path); len > 0;) {
        char above[512];
        while (len > 0 && path[--len] != '/')
            ;
        snprintf(above, sizeof(above), "%.*s", (int)len, path);
        if (may_use(root, mount, above))
            path[len] = '\0';
    }
}

/*
 * Opens cgroup v2. Every cgroup above those of boxes must enable the controllers, and a cgroup that
 * does so must not contain processes, except the root. If the spawner is in such a cgroup, it moves
 * to a child cgroup.
 */
static int open_v2(struct cgroups *cg, int root, const char *mount, const char *table,
                   const char *name) {
    char own[512] = "";
    const char *line = strstr(table, "0::");
    if (line)
        snprintf(own, sizeof(own), "%.*s", (int)strcspn(line + 3, "\n"), line + 3);
    char procs[700];
    snprintf(procs, sizeof(procs), "%s%s/cgroup.procs", *mount ? mount : ".", own);
    climb(root, mount, own);
    int fd = open_base(root, *mount ? mount : ".", own, name);
    if (fd < 0)
        return fd;
    cg->back = openat(root, procs, O_WRONLY | O_CLOEXEC);
    if (make_group(fd, "spawner") == 0)
        write_file_at(fd, "spawner/cgroup.procs", "0");
    write_file_at(fd, "../cgroup.subtree_control", "+memory +cpu +pids");
    if (write_file_at(fd, "cgroup.subtree_control", "+memory +cpu +pids") < 0) {
        static const char *const each[] = {"+memory", "+cpu", "+pids"};
        for (int i = 0; i < 3; i++)
            write_file_at(fd, "cgroup.subtree_control", each[i]);
    }
    char got[128] = "";
    read_file_at(fd, "cgroup.subtree_control", got, sizeof(got));
    cg->memory = strstr(got, "memory") ? fd : -1;
    cg->cpu = strstr(got, "cpu") ? fd : -1;
    cg->pids = strstr(got, "pids") ? fd : -1;
    cg->freezer = fd;
    cg->mode = CGROUP_V2;
    return 0;
}

int cgroups_open(struct cgroups *cg, int root, int proc, const char *name, struct err *err) {
    char table[8192] = "";
    *cg = (struct cgroups){.back = -1, .memory = -1, .cpu = -1, .pids = -1, .freezer = -1};
    snprintf(cg->name, sizeof(cg->name), "%s", name);
    if (root < 0)
        return err_set(err, ERR_UNSUPPORTED, "the host has no cgroup filesystem");
    read_file_at(proc, "self/cgroup", table, sizeof(table));

    int *slots[] = {&cg->memory, &cg->cpu, &cg->pids, &cg->freezer};
    for (size_t i = 0; i < 4; i++)
        *slots[i] = open_v1(root, table, i, name);
    if (cg->freezer >= 0) {
        cg->mode = CGROUP_V1;
        cg->has_memsw = has_file(cg->memory, MEMSW);
        cg->has_tcp = has_file(cg->memory, TCP);
        return 0;
    }
    if (open_v2(cg, root, "", table, name) == 0 || open_v2(cg, root, "unified", table, name) == 0)
        return 0;
    return err_set(err, ERR_UNSUPPORTED, "the host has no writable cgroup hierarchy");
}

void cgroups_close(struct cgroups *cg) {
    const int bases[] = {cg->memory, cg->cpu, cg->pids, cg->freezer};
    if (cg->mode == CGROUP_V2) {
        /* Leave the spawner's own child cgroup first: a cgroup with processes cannot be removed. */
        if (cg->back < 0 || write(cg->back, "0", 1) < 0)
            write_file_at(cg->freezer, "../cgroup.procs", "0");
        unlinkat(cg->freezer, "spawner", AT_REMOVEDIR);
    }
    for (size_t i = 0; i < 4; i++) {
        char path[48];
        snprintf(path, sizeof(path), "../%s", cg->name);
        if (bases[i] >= 0)
            unlinkat(bases[i], path, AT_REMOVEDIR);
    }
}

static int open_in(int dir, const char *group, const char *file, int flags) {
    char path[96];
    snprintf(path, sizeof(path), "%s/%s", group, file);
    int fd = openat(dir, path, flags | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int cgroup_add_spare(struct cgroups *cg, uint64_t box, unsigned number, struct cgroup_spare *ret) {
    bool v2 = cg->mode == CGROUP_V2;
    char group[64];
    snprintf(group, sizeof(group), "b%" PRIu64 "/work/c%u", box, number);
    int r = make_group(cg->freezer, group);
    if (r < 0)
        return r;
    int procs DEFER_CLOSE = open_in(cg->freezer, group, "cgroup.procs", O_RDWR);
    int freeze DEFER_CLOSE =
        open_in(cg->freezer, group, v2 ? "cgroup.freeze" : "freezer.state", O_RDWR);
    int killer = v2 ? open_in(cg->freezer, group, "cgroup.kill", O_WRONLY) : -1;
    if (procs < 0 || freeze < 0)
        return procs < 0 ? procs : freeze;
    *ret = (struct cgroup_spare){TAKE_FD(procs), TAKE_FD(freeze), killer};
    return 0;
}

static int make_v1(struct cgroups *cg, const char *name) {
    const int bases[] = {cg->memory, cg->cpu, cg->pids, cg->freezer};
    char work[64];
    int r = 0;
    for (size_t i = 0; r == 0 && i < sizeof(bases) / sizeof(*bases); i++)
        if (bases[i] >= 0)
            r = make_group(bases[i], name);
    snprintf(work, sizeof(work), "%s/work", name);
    return r < 0 ? r : make_group(cg->freezer, work);
}

static int open_tasks(struct cgroups *cg, const char *name, int ret[CGROUP_TASKS]) {
    const int bases[CGROUP_TASKS] = {cg->memory, cg->cpu, cg->pids};
    int r = 0;
    for (int i = 0; r >= 0 && i < CGROUP_TASKS; i++)
        if (bases[i] >= 0)
            r = ret[i] = open_in(bases[i], name, "tasks", O_WRONLY);
    return r < 0 ? r : 0;
}

int cgroup_open_tasks(struct cgroups *cg, uint64_t box, int ret[CGROUP_TASKS]) {
    char name[32];
    for (int i = 0; i < CGROUP_TASKS; i++)
        ret[i] = -1;
    group_name(name, box);
    return cg->mode == CGROUP_V1 ? open_tasks(cg, name, ret) : 0;
}

/* kept: the groups exist. */
static int new_v1(struct cgroups *cg, const char *name, bool kept, struct cgroup_set *set) {
    int r = kept ? 0 : make_v1(cg, name);
    return r < 0 ? r : open_tasks(cg, name, set->tasks);
}

static int new_v2(struct cgroups *cg, const char *name) {
    char path[96];
    int r = make_group(cg->freezer, name);
    if (r < 0)
        return r;
    snprintf(path, sizeof(path), "%s/cgroup.subtree_control", name);
    if (cg->memory >= 0)
        write_file_at(cg->freezer, path, "+memory");
    if (cg->cpu >= 0)
        write_file_at(cg->freezer, path, "+cpu");
    if (cg->pids >= 0)
        write_file_at(cg->freezer, path, "+pids");
    snprintf(path, sizeof(path), "%s/work", name);
    r = make_group(cg->freezer, path);
    snprintf(path, sizeof(path), "%s/work/memory.swap.max", name);
    write_file_at(cg->freezer, path, "0"); /* forbid swap, because memory.max does not count it */
    return r;
}

static int cgroup_fill(struct cgroups *cg, struct cgroup_set *set, const char *name, bool kept) {
    char path[64];
    int r = cg->mode == CGROUP_V1 ? new_v1(cg, name, kept, set) : new_v2(cg, name);
    if (r < 0)
        return r;
    /* v2 allows processes in leaves only. */
    snprintf(path, sizeof(path), cg->mode == CGROUP_V2 ? "%s/guest" : "%s", name);
    if (cg->mode == CGROUP_V2 && (r = make_group(cg->freezer, path)) < 0)
        return r;
    if ((set->guest_procs = open_in(cg->freezer, path, "cgroup.procs", O_WRONLY)) < 0)
        return set->guest_procs;
    cgroup_open_counters(cg, set);
    r = cgroup_add_spare(cg, set->number, 0, &set->spares[0]);
    set->spare_count = r == 0;
    return r;
}

#define NO_LIMIT UINT64_MAX /* no limit: written as -1 (v1) or "max" (v2) */

struct knob {
    int base;
    const char *v1, *v2;
    uint64_t value;
    const char *what;
};

static int turn(struct cgroups *cg, const char *name, const struct knob *k, struct err *err) {
    char path[96], text[48];
    if (cg->mode == CGROUP_V1) {
        snprintf(path, sizeof(path), "%s/%s", name, k->v1);
        snprintf(text, sizeof(text), "%" PRId64, (int64_t)k->value);
    } else {
        snprintf(path, sizeof(path), "%s/work/%s", name, k->v2);
        bool cpu = strcmp(k->v2, "cpu.max") == 0;
        snprintf(text, sizeof(text), cpu ? "%" PRIu64 " 100000" : "%" PRIu64, k->value);
        if (k->value == NO_LIMIT)
            snprintf(text, sizeof(text), "max 100000");
    }
    int r = write_file_at(k->base, path, text);
    if (r == 0)
        return 0;
    return err_num(err, r, "cannot set the %s of a machine to %" PRIu64, k->what, k->value);
}

/*
 * The limit of memory plus swap must not be below the limit of memory. So it is set first when
 * limits are raised; when they are lowered, this write fails and is repeated afterwards.
 */
static void raise_memsw(struct cgroups *cg, const char *name, uint64_t bytes) {
    char path[96], text[24];
    snprintf(path, sizeof(path), "%s/" MEMSW, name);
    snprintf(text, sizeof(text), "%" PRIu64, bytes);
    write_file_at(cg->memory, path, text);
}

static int turn_all(struct cgroups *cg, const char *name, const struct plan *plan,
                    struct err *err) {
    uint64_t quota_us = plan->cpu_milli == PLAN_UNLIMITED ? NO_LIMIT : plan->cpu_milli * 100;
    int memsw = cg->has_memsw ? cg->memory : -1, tcp = cg->has_tcp ? cg->memory : -1;
    /*
     * On cgroup v1 the guest's worker thread counts as a process, but it is not a process of the
     * machine's user.
     */
    uint64_t workers = cg->mode == CGROUP_V1;
    const struct knob knobs[] = {
        {cg->memory, "memory.limit_in_bytes", "memory.max", plan->mem_bytes, "memory limit"},
        {memsw, MEMSW, NULL, plan->mem_bytes, "memory limit"},
        {tcp, TCP, NULL, plan->mem_bytes / 8, "memory limit"},
        {cg->cpu, "cpu.cfs_quota_us", "cpu.max", quota_us, "cpu limit"},
        {cg->pids, "pids.max", "pids.max", plan->pids ? plan->pids + workers : 0, "process limit"},
    };
    for (size_t i = 0; i < sizeof(knobs) / sizeof(*knobs); i++)
        if (knobs[i].base >= 0 && knobs[i].value && !weakened(knobs[i].what) &&
            turn(cg, name, &knobs[i], err) < 0)
            return -1;
    return 0;
}

int cgroup_limit(struct cgroups *cg, uint64_t number, const struct plan *plan, struct err *err) {
    char name[32];
    group_name(name, number);
    if (cg->has_memsw && cg->memory >= 0 && plan->mem_bytes && !weakened("memory limit"))
        raise_memsw(cg, name, plan->mem_bytes);
    return turn_all(cg, name, plan, err);
}

void cgroup_close(struct cgroup_set *set) {
    close_fd(&set->guest_procs);
    for (int i = 0; i < CGROUP_MEMORY_FILES; i++)
        close_fd(&set->memory[i]);
    for (int i = 0; i < CGROUP_CPU_FILES; i++)
        close_fd(&set->cpu[i]);
    for (int i = 0; i < CGROUP_TASKS; i++)
        close_fd(&set->tasks[i]);
    for (unsigned i = 0; i < set->spare_count; i++) {
        close_fd(&set->spares[i].procs);
        close_fd(&set->spares[i].freeze);
        close_fd(&set->spares[i].kill);
    }
    set->spare_count = 0;
}

int cgroup_new(struct cgroups *cg, struct cgroup_set *ret, struct err *err) {
    struct cgroup_set set = CGROUP_SET_NONE;
    char name[32];
    bool kept = cgroup_take_kept(cg, &set.number);
    if (!kept)
        set.number = cg->next++;
    if (cg->mode == CGROUP_NONE) {
        *ret = set;
        return 0;
    }
    group_name(name, set.number);
    int r = cgroup_fill(cg, &set, name, kept);
    struct plan defaults = {.mem_bytes = LIMIT_MEM, .pids = LIMIT_PIDS};
    /* Groups that are used again have these limits, or they would not be as new. */
    if (r == 0 && !kept && turn_all(cg, name, &defaults, err) < 0)
        r = -EINVAL;
    else if (r < 0) {
        err_num(err, r, "cannot create cgroup '%s'", name);
    }
    if (r < 0) {
        cgroup_close(&set);
        cgroup_remove(cg, set.number);
        return -1;
    }
    cgroup_learn(cg, set.number);
    *ret = set;
    return 0;
}

enum { PIDS_TEXT = 16384 };

/* Use whole lines only: a pid cut off at the end of the buffer would be another process. */
static void visit_listed(const char *text, void (*visit)(int pid, void *arg), void *arg) {
    for (const char *end; (end = strchr(text, '\n')); text = end + 1) {
        long pid = strtol(text, NULL, 10);
        if (pid > 1)
            visit((int)pid, arg);
    }
}

unsigned cgroup_next_spare(struct cgroups *cg, uint64_t box) {
    char path[64];
    unsigned next = 0;
    snprintf(path, sizeof(path), "b%" PRIu64 "/work", box);
    DIR *d DEFER(dir_close) = dir_list(cg->freezer, path);
    for (struct dirent *e; d && (e = readdir(d));) {
        uint64_t number;
        if (e->d_type == DT_DIR && e->d_name[0] == 'c' &&
            parse_name(e->d_name + 1, UINT32_MAX - 1, &number) && number >= next)
            next = (unsigned)number + 1;
    }
    return next;
}

/*
 * Visits the processes in the cgroup base/name and in the cgroups below it, at most as many per
 * cgroup as fit into `text`. Callers repeat it until none is left.
 */
static void each_pid(int base, const char *name, void (*visit)(int pid, void *arg), void *arg) {
    int dir DEFER_CLOSE = dir_open(base, name);
    if (dir < 0)
        return;
    char text[PIDS_TEXT];
    if (read_file_at(dir, "cgroup.procs", text, sizeof(text)) > 0)
        visit_listed(text, visit, arg);
    DIR *d DEFER(dir_close) = dir_take(TAKE_FD(dir));
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_type == DT_DIR && e->d_name[0] != '.')
            each_pid(dirfd(d), e->d_name, visit, arg);
}

/*
 * On cgroup v1, each controller has all tasks of a box in one cgroup without children, which is
 * faster to read than the tree of the freezer.
 */
void cgroup_each_pid(struct cgroups *cg, uint64_t number, void (*visit)(int pid, void *arg),
                     void *arg) {
    char path[64], text[PIDS_TEXT];
    int flat = cg->pids >= 0 ? cg->pids : cg->memory;
    snprintf(path, sizeof(path), "b%" PRIu64 "/cgroup.procs", number);
    if (cg->mode == CGROUP_V1 && flat >= 0 && read_file_at(flat, path, text, sizeof(text)) >= 0) {
        visit_listed(text, visit, arg);
        return;
    }
    group_name(path, number);
    if (cg->mode != CGROUP_NONE)
        each_pid(cg->freezer, path, visit, arg);
}

int cgroup_freeze(struct cgroups *cg, uint64_t number, bool frozen) {
    bool v1 = cg->mode == CGROUP_V1;
    char path[96], text[256] = "";
    if (cg->mode == CGROUP_NONE)
        return -EOPNOTSUPP;
    snprintf(path, sizeof(path), "b%" PRIu64 "/work/%s", number,
             v1 ? "freezer.state" : "cgroup.freeze");
    const char *const words[2][2] = {{"0", "1"}, {"THAWED", "FROZEN"}};
    int r = write_file_at(cg->freezer, path, words[v1][frozen]);
    if (r < 0)
        return r;
    if (!v1)
        snprintf(path, sizeof(path), "b%" PRIu64 "/work/cgroup.events", number);
    ssize_t n = read_file_at(cg->freezer, path, text, sizeof(text));
    if (n < 0)
        return (int)n;
    const char *const reached[2][2] = {{"frozen 0", "frozen 1"}, {"THAWED", "FROZEN"}};
    return strstr(text, reached[v1][frozen]) != NULL;
}

static void kill_pid(int pid, void *arg) {
    (void)arg;
    kill(pid, SIGKILL);
}

/*
 * Freezes the processes of a cgroup, then kills them. Frozen processes neither fork nor exit: so
 * the list of processes is complete, and no pid in it can be reused.
 */
static void kill_frozen(struct cgroups *cg, const char *name) {
    char path[64], state[16] = "";
    snprintf(path, sizeof(path), "%s/freezer.state", name);
    write_file_at(cg->freezer, path, "FROZEN");
    for (int i = 0; i < FREEZE_TRIES && strcmp(state, "FROZEN\n") != 0; i++) {
        if (read_file_at(cg->freezer, path, state, sizeof(state)) < 0)
            break;
        sched_yield();
    }
    each_pid(cg->freezer, name, kill_pid, NULL);
}

static void kill_group(struct cgroups *cg, const char *name) {
    char path[64];
    snprintf(path, sizeof(path), "%s/cgroup.kill", name);
    if (cg->mode == CGROUP_V1)
        kill_frozen(cg, name);
    else if (write_file_at(cg->freezer, path, "1") == -ENOENT)
        each_pid(cg->freezer, name, kill_pid, NULL);
}

static bool remove_tree(int base, const char *name) {
    DIR *d DEFER(dir_close) = dir_list(base, name);
    if (!d)
        return true;
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_type == DT_DIR && e->d_name[0] != '.')
            remove_tree(dirfd(d), e->d_name);
    return unlinkat(base, name, AT_REMOVEDIR) == 0 || errno == ENOENT;
}

static void thaw_tree(int base, const char *name) {
    DIR *d DEFER(dir_close) = dir_list(base, name);
    if (!d)
        return;
    write_file_at(dirfd(d), "freezer.state", "THAWED");
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_type == DT_DIR && e->d_name[0] != '.')
            thaw_tree(dirfd(d), e->d_name);
}

void cgroup_thaw(struct cgroups *cg, uint64_t number) {
    char name[32];
    if (cg->mode != CGROUP_V1)
        return;
    group_name(name, number);
    thaw_tree(cg->freezer, name);
}

/*
 * Removes the cgroups of a box in the normal case: they are empty, and those of commands are
 * numbered from c0. Removing them without listing the directory is faster.
 */
static bool remove_empty(struct cgroups *cg, const char *name) {
    char path[64];
    for (unsigned i = 0;; i++) {
        snprintf(path, sizeof(path), "%s/work/c%u", name, i);
        if (unlinkat(cg->freezer, path, AT_REMOVEDIR) < 0)
            break;
    }
    const char *const last[] = {"/work", "/guest", ""};
    for (size_t i = 0; i < 3; i++) {
        if (i == 1 && cg->mode != CGROUP_V2)
            continue;
        snprintf(path, sizeof(path), "%s%s", name, last[i]);
        if (unlinkat(cg->freezer, path, AT_REMOVEDIR) < 0)
            return false;
    }
    const int bases[] = {cg->memory, cg->cpu, cg->pids};
    for (size_t i = 0; i < 3 && cg->mode == CGROUP_V1; i++)
        if (bases[i] >= 0 && unlinkat(bases[i], name, AT_REMOVEDIR) < 0)
            return false;
    return true;
}

bool cgroup_remove(struct cgroups *cg, uint64_t number) {
    char name[32];
    if (cg->mode == CGROUP_NONE)
        return true;
    group_name(name, number);
    if (remove_empty(cg, name))
        return true;
    kill_group(cg, name);
    cgroup_thaw(cg, number);
    const int bases[] = {cg->freezer, cg->memory, cg->cpu, cg->pids};
    bool gone = true;
    for (size_t i = 0; i < (cg->mode == CGROUP_V1 ? 4 : 1); i++)
        gone = (bases[i] < 0 || remove_tree(bases[i], name)) && gone;
    return gone;
}

void cgroups_each(struct cgroups *cg, void (*seen)(uint64_t number, void *arg), void *arg) {
    const int bases[] = {cg->freezer, cg->memory, cg->cpu, cg->pids};
    for (size_t i = 0; i < 4; i++) {
        DIR *d DEFER(dir_close) = bases[i] < 0 ? NULL : dir_list(bases[i], ".");
        for (struct dirent *e; d && (e = readdir(d));) {
            uint64_t number;
            if (e->d_type == DT_DIR && e->d_name[0] == 'b' &&
                parse_name(e->d_name + 1, UINT64_MAX, &number))
                seen(number, arg);
        }
    }
}
