#include "guest/tree.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "guest/scratch.h"
#include "guest/sys.h"

static struct tree *free_slot(struct guest *g) {
    for (uint32_t i = 0; i < g->tree_end; i++)
        if (g->trees[i].procs < 0)
            return &g->trees[i];
    return g->tree_end < TREE_MAX ? &g->trees[g->tree_end++] : NULL;
}

bool tree_add(struct guest *g, int procs, int freeze, int kill) {
    struct tree *t = free_slot(g);
    if (!t) {
        close_fd(&procs);
        close_fd(&freeze);
        close_fd(&kill);
        return false;
    }
    *t = (struct tree){.procs = procs, .freeze = freeze, .kill = kill};
    g->has_trees = true;
    g->features |= MSG_FEATURE_TREE;
    return true;
}

void tree_drop(struct tree *t) {
    close_fd(&t->procs);
    close_fd(&t->freeze);
    close_fd(&t->kill);
    t->used = true;
}

static int tree_file(int cgroup, const char *name) {
    return openat(cgroup, name, O_RDWR | O_CLOEXEC);
}

/* Makes a cgroup in the guest's own directory. Its name is a letter for each four bits of a number.
 */
static bool tree_make(struct guest *g) {
    char name[5] = {0};
    for (int i = 0; i < 4; i++)
        name[i] = (char)('a' + (g->cgroups_made >> 4 * i & 15));
    g->cgroups_made++;
    mkdirat(g->cgroups, name, 0755);
    int cgroup = openat(g->cgroups, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int procs = tree_file(cgroup, "cgroup.procs"), freeze = tree_file(cgroup, "cgroup.freeze");
    int kill = openat(cgroup, "cgroup.kill", O_WRONLY | O_CLOEXEC);
    close_fd(&cgroup);
    if (procs >= 0 && freeze >= 0)
        return tree_add(g, procs, freeze, kill);
    close_fd(&procs);
    close_fd(&freeze);
    close_fd(&kill);
    return false;
}

void tree_begin(struct guest *g, int dir) {
    g->cgroups = dir;
    tree_make(g);
}

struct tree *tree_take(struct guest *g) {
    for (int tries = 0; tries < 2; tries++) {
        for (uint32_t i = 0; i < g->tree_end; i++) {
            if (g->trees[i].used)
                continue;
            g->trees[i].used = true;
            return &g->trees[i];
        }
        if (g->cgroups == 0 || !tree_make(g))
            break;
    }
    return NULL;
}

uint32_t tree_spares(const struct guest *g) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->tree_end; i++)
        n += !g->trees[i].used;
    return n;
}

/*
 * On cgroup v1 a second read of an open file returns a list that is up to a second old. So the list
 * of processes is opened anew each time.
 */
static int members_open(const struct tree *t) {
    char path[32];
    return openat(usage_files.proc, own_path(t->procs, path), O_RDONLY | O_CLOEXEC);
}

/*
 * True if the cgroup has no processes. A cgroup whose list of processes cannot be read counts as
 * not empty.
 */
bool tree_is_empty(struct guest *g, const struct tree *t) {
    if (g->is_childless || !t)
        return true;
    char c;
    reserve_release(g);
    int fd = members_open(t);
    bool is_empty = fd >= 0 && read(fd, &c, 1) == 0;
    close_fd(&fd);
    reserve_restore(g);
    return is_empty;
}

/* Kills each process listed in a page of cgroup.procs; returns their number. */
static int kill_listed(char *text, ssize_t n) {
    int killed = 0;
    for (char *end = text + n, *nl; (nl = memchr(text, '\n', (size_t)(end - text)));
         text = nl + 1) {
        pid_t pid = (pid_t)strtol(text, NULL, 10);
        if (pid > 1 && kill(pid, SIGKILL) == 0)
            killed++;
    }
    return killed;
}

/*
 * Kills all processes of a cgroup. Returns their number, or -1 if the list of processes could not
 * be opened. An incomplete line at the end of a page is read again with the next page.
 */
static int kill_all(const struct tree *t) {
    char text[4096];
    off_t at = 0;
    int killed = 0;
    int fd = members_open(t);
    if (fd < 0)
        return -1;
    for (ssize_t n; (n = pread(fd, text, sizeof(text), at)) > 0;) {
        char *last = memrchr(text, '\n', (size_t)n);
        if (!last)
            break;
        killed += kill_listed(text, last + 1 - text);
        at += last + 1 - text;
    }
    close_fd(&fd);
    return killed;
}

static void freezer_set(const struct tree *t, const char *v1, const char *v2) {
    if (pwrite(t->freeze, v1, strlen(v1), 0) < 0)
        (void)!pwrite(t->freeze, v2, strlen(v2), 0);
}

/*
 * cgroup v1 reports "FROZEN" only when the last task has stopped. cgroup v2 has no such word; there
 * frozen tasks can be killed at any time.
 */
static bool is_frozen(const struct tree *t) {
    char state[8] = {0};
    (void)!pread(t->freeze, state, sizeof(state) - 1, 0);
    return memcmp(state, "FREEZING", 7) != 0;
}

/*
 * Freezes a cgroup and kills its processes. While all processes are frozen, none can fork, so the
 * list has all processes of the cgroup.
 */
static bool kill_frozen(const struct tree *t) {
    freezer_set(t, "FROZEN", "1");
    int killed = 0;
    for (int i = 0; i < 64; i++) {
        bool still = is_frozen(t);
        killed = kill_all(t);
        if (still)
            break;
        sched_yield();
    }
    freezer_set(t, "THAWED", "0");
    return killed == 0;
}

struct process {
    pid_t pid, parent, session;
};

/*
 * Parses /proc/PID/stat: "pid (name) S ppid pgrp session ...". The name may contain any characters,
 * so parse from its end.
 */
static bool process_read(int proc, const char *pid, struct process *ret) {
    char path[32], text[512];
    size_t len = strnlen(pid, sizeof(path) - 6);
    memcpy(path, pid, len);
    memcpy(path + len, "/stat", 6);
    int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    char *at = strrchr(text, ')');
    if (!at || n - (at - text) < 4 || at[2] == 'Z')
        return false;
    ret->pid = (pid_t)strtol(pid, NULL, 10);
    ret->parent = (pid_t)strtol(at + 3, &at, 10);
    strtol(at, &at, 10);
    ret->session = (pid_t)strtol(at, NULL, 10);
    return true;
}

#define WALK_MAX 1024

static int processes_list(struct process *ret, int max) {
    /* A cell machine has no /proc, but its guest has a descriptor. */
    int proc = openat(usage_files.proc, usage_files.is_hidden ? "." : "/proc",
                      O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = proc >= 0 ? fdopendir(proc) : NULL;
    if (!dir) {
        close_fd(&proc);
        return -1;
    }
    int n = 0;
    for (struct dirent *e; n < max && (e = readdir(dir));)
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
            n += process_read(dirfd(dir), e->d_name, &ret[n]);
    closedir(dir);
    return n;
}

/* For hosts without cgroups: kills the processes of the leader's session and its descendants. */
static bool kill_walk(pid_t leader) {
    static struct process all[WALK_MAX] SCRATCH;
    static bool mine[WALK_MAX] SCRATCH;
    int n = processes_list(all, WALK_MAX);
    for (int i = 0; i < n; i++)
        mine[i] = all[i].pid == leader || all[i].session == leader;
    bool grew = true;
    for (int pass = 0; grew && pass < 64; pass++) {
        grew = false;
        for (int i = 0; i < n; i++)
            for (int j = 0; !mine[i] && j < n; j++)
                if (mine[j] && all[i].parent == all[j].pid)
                    mine[i] = grew = true;
    }
    int killed = 0;
    for (int i = 0; i < n; i++)
        if (mine[i] && all[i].pid > 1)
            killed += kill(all[i].pid, SIGKILL) == 0;
    return n >= 0 && killed == 0;
}

bool tree_kill(struct guest *g, const struct tree *t, pid_t leader) {
    if (t && tree_is_empty(g, t))
        return true;
    if (t && t->kill >= 0 && pwrite(t->kill, "1", 1, 0) == 1)
        return tree_is_empty(g, t);
    reserve_release(g);
    bool is_done = t ? kill_frozen(t) : kill_walk(leader);
    reserve_restore(g);
    return is_done;
}
