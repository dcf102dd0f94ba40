#include "guest/start.h"

#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include "base/cell_command.h"
#include "guest/account.h"
#include "guest/scratch.h"
#include "guest/sys.h"

/*
 * Argument list of the next command. The slot before argv is for the shell that runs a script
 * without "#!".
 */
static char *argv_slots[1 + MSG_STRINGS_MAX + 1] SCRATCH;
/* Environment of the next command. The last slots are for the variables of its account. */
static char *env_slots[MSG_STRINGS_MAX + 4 + 1] SCRATCH;
static const char *home; /* the account's home directory, if it is the working directory */
static uint8_t child_stack[32 << 10] SCRATCH __attribute__((aligned(16)));

#define PROD_NS 20000000 /* interval of SIGCONT to a child that did not exec yet */

static int prod_clock = -1;
static volatile pid_t unborn; /* the child that did not exec its program yet */
static volatile int64_t give_up_ns;

int start_clock(void) {
    prod_clock = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    return prod_clock;
}

/* Sets the timer of start_prod(); 0: off. Setting a timer also clears its expiration. */
static void prod_in(long ns) {
    struct itimerspec in = {.it_value.tv_nsec = ns};
    timerfd_settime(prod_clock, 0, &in, NULL);
}

/*
 * Runs in the other thread: continues or kills a child that did not exec yet. The child exists, at
 * least as a zombie, until the waiting thread continues. So these calls do not fail, and errno,
 * which both threads share, is not changed.
 */
void start_prod(void) {
    pid_t pid = unborn;
    if (pid > 0)
        kill(pid, now_ns() >= give_up_ns ? SIGKILL : SIGCONT);
    prod_in(pid > 0 ? PROD_NS : 0);
}

/* Gives the memory pages of a long argument list back to the kernel. */
static void slots_trim(char **slots, const struct msg_strs *strs) {
    if (strs->count < 4096)
        return;
    uintptr_t from = ((uintptr_t)slots + 0xffff) & ~(uintptr_t)0xffff;
    uintptr_t to = (uintptr_t)(slots + strs->count) & ~(uintptr_t)0xffff;
    if (from < to)
        madvise((void *)from, to - from, MADV_DONTNEED);
}

static void slots_fill(char **slots, const struct msg_strs *strs) {
    const char *s = strs->s;
    for (uint32_t i = 0; i < strs->count; i++, s += strlen(s) + 1)
        *slots++ = (char *)s;
    *slots = NULL;
}

static int join_cgroup(struct start *s) {
    return s->procs < 0 || write(s->procs, "0", 1) == 1 ? 0 : -1;
}

static bool runs_worker(const struct start *s) {
    return s->worker >= 0 && !s->tool;
}

enum { WORKER_FD = CELL_METER_FD + 1, ABOVE_FDS = 16 };
_Static_assert(CELL_ASKS_FD == WORKER_FD + 1 && CELL_DUMP_FD == CELL_ASKS_FD + 1 &&
                   CELL_CONTROL_FD == CELL_DUMP_FD + 1 && CELL_STATE_FD == CELL_CONTROL_FD + 1,
               "keep_worker() numbers descriptors in this order");

/*
 * In a cell machine, keeps descriptors of the worker from CELL_METER_FD on, and closes all others.
 * They are moved out of the way first. The program's descriptor is closed by its exec.
 */
static int keep_worker(const struct start *s) {
    const int kept[] = {s->meter, s->worker, s->asks, s->dump, s->control, s->state};
    enum { KEPT = sizeof(kept) / sizeof(*kept) };
    int moved[KEPT];
    for (unsigned i = 0; i < KEPT; i++) {
        moved[i] = kept[i] > 0 ? fcntl(kept[i], F_DUPFD, ABOVE_FDS) : -1;
        if (kept[i] > 0 && moved[i] < 0)
            return -1;
    }
    (void)!syscall(SYS_close_range, (unsigned)CELL_METER_FD, ABOVE_FDS - 1u, 0u);
    for (unsigned i = 0; i < KEPT; i++)
        if (moved[i] >= 0 && dup3(moved[i], CELL_METER_FD + (int)i,
                                  CELL_METER_FD + i == WORKER_FD ? O_CLOEXEC : 0) < 0)
            return -1;
    (void)!syscall(SYS_close_range, (unsigned)ABOVE_FDS, ~0u, 0u);
    return 0;
}

/* Sets descriptors 0, 1 and 2 of the command and closes all others. */
static int set_stdio(struct start *s) {
    setsid();
    for (int i = 0; i < 3; i++)
        if (dup2(s->stdio[i], i) < 0)
            return -1;
    if (s->is_session && ioctl(0, TIOCSCTTY, 0) < 0)
        return -1;
    if (!runs_worker(s)) {
        (void)!syscall(SYS_close_range, 3u, ~0u, 0u);
        return 0;
    }
    return keep_worker(s);
}

static uint64_t lower_of(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static int set_rlimits(struct start *s) {
    const struct msg_rlimits *limits = &s->exec->rlimits;
    if (syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, s->files, NULL) < 0)
        return -1;
    for (uint32_t i = 0; i < limits->count; i++) {
        const struct msg_rlimit *want = &limits->v[i];
        uint64_t has[2];
        if (syscall(SYS_prlimit64, 0, want->resource, NULL, has) < 0)
            return -1;
        uint64_t hard = lower_of(want->hard, has[1]);
        uint64_t set[2] = {lower_of(want->soft, hard), hard};
        if (syscall(SYS_prlimit64, 0, want->resource, set, NULL) < 0)
            return -1;
    }
    return 0;
}

static int set_ids(uint32_t uid, uint32_t gid, size_t count, const uint32_t *groups) {
    if (syscall(SYS_setgroups, count, groups) < 0)
        return -1;
    if (gid != MSG_ID_NONE && sys_set_gid(gid) < 0)
        return -1;
    return uid != MSG_ID_NONE && syscall(SYS_setresuid, uid, uid, uid) < 0 ? -1 : 0;
}

/* Adds a variable ("NAME=value"), unless the environment has one with this name. */
static void env_add(const char *variable) {
    size_t n = (size_t)(strchr(variable, '=') - variable) + 1;
    char **at = env_slots;
    while (*at && strncmp(*at, variable, n) != 0)
        at++;
    if (*at)
        return;
    at[0] = (char *)variable;
    at[1] = NULL;
}

/* Becomes the user that the first string of the environment names, and removes that string. */
static int set_named_user(struct start *s) {
    const struct msg_exec *e = s->exec;
    struct account_found a;
    const char *name = env_slots[0];
    if (account_resolve(e, name, &a) < 0)
        return -1;
    memmove(env_slots, env_slots + 1, e->env.count * sizeof(*env_slots));
    for (const char *const *v = a.variables; *v; v++)
        env_add(*v);
    home = a.home;
    return set_ids(a.uid, a.gid, a.group_count, a.groups);
}

static int set_user(struct start *s) {
    const struct msg_exec *e = s->exec;
    if (e->flags & MSG_EXEC_NAMED)
        return set_named_user(s);
    if (e->uid == MSG_ID_NONE && e->gid == MSG_ID_NONE && e->groups.count == 0)
        return 0;
    return set_ids(e->uid, e->gid, e->groups.count, e->groups.v);
}

/* Like login, falls back to "/" if the user has no usable home directory. */
static int set_cwd(struct start *s) {
    const struct msg_exec *e = s->exec;
    if (e->flags & MSG_EXEC_NAMED && strcmp(e->cwd.s, MSG_CWD_HOME) == 0)
        return chdir(home) == 0 ? 0 : chdir("/");
    return chdir(e->cwd.n ? e->cwd.s : "/");
}

static void exec_path(const char *path) {
    char **argv = argv_slots + 1;
    execve(path, argv, env_slots);
    if (errno != ENOEXEC)
        return;
    char *name = argv[0];
    argv_slots[0] = (char *)"/bin/sh";
    argv[0] = (char *)path;
    execve(argv_slots[0], argv_slots, env_slots);
    argv[0] = name;
}

static const char *search_path(void) {
    for (char **e = env_slots; *e; e++)
        if (strncmp(*e, "PATH=", 5) == 0)
            return *e + 5;
    return "/usr/local/bin:/usr/bin:/bin";
}

/* Tries to execute the program in one directory of PATH; an empty name is the working directory. */
static void exec_in(const char *dir, size_t n, const char *name) {
    static char path[PATH_MAX] SCRATCH;
    size_t len = strlen(name);
    if (n + 1 + len >= sizeof(path)) {
        errno = ENAMETOOLONG;
        return;
    }
    memcpy(path, dir, n);
    path[n] = '/';
    memcpy(path + (n ? n + 1 : 0), name, len + 1);
    exec_path(path);
}

/*
 * Tries to execute bash for a command line. Returns if the machine has no usable bash; then argv is
 * as before.
 */
static void exec_bash(void) {
    static const char bash[] = "/bin/bash";
    char *name = argv_slots[1];
    argv_slots[1] = (char *)bash;
    execve(bash, argv_slots + 1, env_slots);
    argv_slots[1] = name;
}

/*
 * Executes the program of the command and searches PATH like execvp: if a program was found but may
 * not be executed, EACCES is reported.
 */
static int exec_program(struct start *s) {
    if (s->tool)
        _exit(s->tool(argv_slots + 1));
    if (runs_worker(s)) /* a cell machine never executes a file of its own */
        return (int)syscall(SYS_execveat, WORKER_FD, "", argv_slots + 1, env_slots, AT_EMPTY_PATH);
    if (s->exec->flags & MSG_EXEC_SHELL)
        exec_bash();
    const char *name = argv_slots[1];
    if (strchr(name, '/') || !*name) {
        exec_path(name);
        return -1;
    }
    int refused = 0;
    for (const char *dir = search_path();; dir++) {
        const char *end = strchrnul(dir, ':');
        exec_in(dir, (size_t)(end - dir), name);
        if (errno == EACCES)
            refused = EACCES;
        else if (errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG)
            return -1;
        dir = end;
        if (!*dir)
            break;
    }
    errno = refused ? refused : ENOENT;
    return -1;
}

static const struct {
    enum msg_step step;
    int (*run)(struct start *);
} steps[] = {
    {MSG_STEP_CGROUP, join_cgroup}, {MSG_STEP_STDIO, set_stdio}, {MSG_STEP_RLIMIT, set_rlimits},
    {MSG_STEP_USER, set_user},      {MSG_STEP_CWD, set_cwd},     {MSG_STEP_EXEC, exec_program},
};

static int child_main(void *arg) {
    struct start *s = arg;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(022);
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        if (steps[i].run(s) == 0)
            continue;
        s->failed_errno = errno;
        s->failed_step = steps[i].step;
        break;
    }
    _exit(127);
}

void start_process(struct start *s) {
    slots_fill(argv_slots + 1, &s->exec->argv);
    slots_fill(env_slots, &s->exec->env);
    s->failed_errno = 0;
    /*
     * A tool (struct start.tool) runs in the child without exec, so the child gets a copy of the
     * memory. A tool reports a failure by its exit status.
     */
    int flags = CLONE_PARENT_SETTID | SIGCHLD | (s->tool ? 0 : CLONE_VM | CLONE_VFORK);
    give_up_ns = s->deadline_ns ? s->deadline_ns : now_ns() + START_MAX_NS;
    prod_in(PROD_NS);
    s->pid = clone(child_main, child_stack + sizeof(child_stack), flags, s, &unborn);
    unborn = 0;
    prod_in(0);
    if (s->pid < 0) {
        s->failed_errno = errno;
        s->failed_step = MSG_STEP_FORK;
        return;
    }
    slots_trim(argv_slots + 1, &s->exec->argv);
    slots_trim(env_slots, &s->exec->env);
    /*
     * The child shares this memory, and its change of user id may have made the process dumpable
     * again.
     */
    prctl(PR_SET_DUMPABLE, 0);
    if (s->failed_errno)
        while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
            ;
}
