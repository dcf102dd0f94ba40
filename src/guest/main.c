/*
 * carrel-guest key=value...
 *
 *   ctl=FD        the creator's connection      listen=FD     where later hosts connect
 *   spawn=FD      the spawner's connection      admin=FD      where later spawners connect
 *   port=FD       a serial port to the host
 *   --port PATH   the same, by path or by the name of a virtio port; of several, the first one
 *                 may not send messages of the spawner
 *   tasks=FD,...  cgroup v1 `tasks` files       cg=P:F[:K]    a spare command cgroup (repeated)
 *   deadline_ms=N end of the machine            linger=0|1    1: outlive the creator's connection
 *   keep=FD,...   descriptors that are only kept open
 *   cover=NAME:FD a file over /proc/NAME        proc=P,C      /proc, and the host's /proc/cpuinfo
 *   memory=L,U,S  memory: limit, use, stat      quota=FD cpu=FD  cpu: limit, use
 *   cell=FD       a cell machine: this program runs every command, and no other program runs
 *
 * Started as /init of a vm's initramfs, it makes the vm ready and opens the virtio port VM_PORT:
 * see guest/init.h.
 *
 * The guest is started inside all namespaces, with its final root, seccomp filter and capabilities.
 */
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include "base/wire/vm_address.h"
#include "guest/calls.h"
#include "guest/cmd.h"
#include "guest/conn.h"
#include "guest/covers.h"
#include "guest/guest.h"
#include "guest/identity.h"
#include "guest/init.h"
#include "guest/scratch.h"
#include "guest/serial.h"
#include "guest/start.h"
#include "guest/sys.h"
#include "guest/tool.h"
#include "guest/tree.h"
#include "guest/usage.h"
#include "guest/warm.h"

#define TASKS_MAX 8
#define EVENTS_MAX 16
#define EXIT_BAD_START 125
#define FILES_MAX 4096

struct args {
    int ctl, spawn, listen, admin, port;
    int tasks[TASKS_MAX];
    int task_count;
    uint64_t deadline_ms;
    bool lingers;
    bool clean; /* the program that started the guest has reset ignored signals */
};

static struct guest the_guest;

int source_add(struct guest *g, struct source *src, uint32_t events) {
    struct epoll_event ev = {.events = events, .data.ptr = src};
    return epoll_ctl(g->epoll, EPOLL_CTL_ADD, src->fd, &ev);
}

void source_rearm(struct guest *g, struct source *src, uint32_t events) {
    struct epoll_event ev = {.events = events, .data.ptr = src};
    epoll_ctl(g->epoll, EPOLL_CTL_MOD, src->fd, &ev);
}

/*
 * Closes a source. Removes its descriptor from epoll explicitly: a duplicate in a child would keep
 * it in the epoll set.
 */
void source_close(struct guest *g, struct source *src) {
    if (src->fd < 0)
        return;
    epoll_ctl(g->epoll, EPOLL_CTL_DEL, src->fd, NULL);
    close_fd(&src->fd);
}

void reserve_release(struct guest *g) {
    close_fd(&g->reserve[0]);
    close_fd(&g->reserve[1]);
}

void reserve_restore(struct guest *g) {
    g->reserve[0] = fcntl(g->null, F_DUPFD_CLOEXEC, 3);
    g->reserve[1] = fcntl(g->null, F_DUPFD_CLOEXEC, 3);
}

/* Command line arguments. */

static int main_number_of(const char **at, char until) {
    char *end;
    long v = strtol(*at, &end, 10);
    if (end == *at || v < 0 || v > INT_MAX || (*end && *end != until))
        _exit(EXIT_BAD_START);
    *at = *end ? end + 1 : end;
    return (int)v;
}

static int descriptor_of(const char **at, char until) {
    int fd = main_number_of(at, until);
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        _exit(EXIT_BAD_START);
    return fd;
}

static void arg_ctl(struct args *a, const char *v) {
    a->ctl = descriptor_of(&v, '\0');
}

static void arg_spawn(struct args *a, const char *v) {
    a->spawn = descriptor_of(&v, '\0');
}

static void arg_listen(struct args *a, const char *v) {
    a->listen = descriptor_of(&v, '\0');
}

static void arg_admin(struct args *a, const char *v) {
    a->admin = descriptor_of(&v, '\0');
}

static void arg_port(struct args *a, const char *v) {
    a->port = descriptor_of(&v, '\0');
}

static void arg_tasks(struct args *a, const char *v) {
    while (*v && a->task_count < TASKS_MAX)
        a->tasks[a->task_count++] = descriptor_of(&v, ',');
}

static void arg_cg(struct args *a, const char *v) {
    (void)a;
    int procs = descriptor_of(&v, ':');
    int freeze = descriptor_of(&v, ':');
    tree_add(&the_guest, procs, freeze, *v ? descriptor_of(&v, ':') : -1);
}

static void arg_deadline(struct args *a, const char *v) {
    a->deadline_ms = strtoull(v, NULL, 10);
}

static void arg_linger(struct args *a, const char *v) {
    a->lingers = main_number_of(&v, '\0') != 0;
}

static void arg_clean(struct args *a, const char *v) {
    a->clean = main_number_of(&v, '\0') != 0;
}

static void arg_keep(struct args *a, const char *v) {
    (void)a;
    while (*v)
        descriptor_of(&v, ',');
}

/* Reads up to `max` descriptors; files that are not named stay -1. */
static void main_files_of(const char *v, int *ret, int max) {
    for (int i = 0; *v && i < max; i++)
        ret[i] = descriptor_of(&v, ',');
}

static void arg_cover(struct args *a, const char *v) {
    (void)a;
    const char *colon = strchr(v, ':'), *at = colon ? colon + 1 : v;
    if (!colon || !covers_add(v, (unsigned)(colon - v), descriptor_of(&at, '\0')))
        _exit(EXIT_BAD_START);
}

static void arg_proc(struct args *a, const char *v) {
    int files[2] = {-1, -1};
    (void)a;
    main_files_of(v, files, 2);
    usage_files.proc = files[0];
    usage_files.processors = files[1];
}

static void arg_memory(struct args *a, const char *v) {
    (void)a;
    main_files_of(v, usage_files.memory, 3);
}

static void arg_cpu(struct args *a, const char *v) {
    (void)a;
    main_files_of(v, &usage_files.cpu, 1);
}

static void arg_cell(struct args *a, const char *v) {
    (void)a;
    the_guest.worker = descriptor_of(&v, '\0');
    the_guest.features |= MSG_FEATURE_CELL | MSG_FEATURE_ALLOW | MSG_FEATURE_ASKS |
                          MSG_FEATURE_MODULE | MSG_FEATURE_DUMP | MSG_FEATURE_PAUSE;
    usage_files.is_hidden = true;
}

static void arg_quota(struct args *a, const char *v) {
    (void)a;
    main_files_of(v, &usage_files.quota, 1);
}

static const struct {
    const char *key;
    void (*read)(struct args *, const char *value);
} keys[] = {
    {"ctl=", arg_ctl},       {"admin=", arg_admin},
    {"spawn=", arg_spawn},   {"listen=", arg_listen},
    {"port=", arg_port},     {"tasks=", arg_tasks},
    {"cg=", arg_cg},         {"keep=", arg_keep},
    {"linger=", arg_linger}, {"deadline_ms=", arg_deadline},
    {"clean=", arg_clean},   {"cover=", arg_cover},
    {"proc=", arg_proc},     {"memory=", arg_memory},
    {"cpu=", arg_cpu},       {"quota=", arg_quota},
    {"cell=", arg_cell},
};

static void args_read(struct args *a, char **argv) {
    for (argv++; *argv; argv++) {
        if (strcmp(*argv, "--port") == 0 && argv[1] && serial_add(&the_guest, argv[1])) {
            argv++;
            continue;
        }
        size_t i = 0, n = sizeof(keys) / sizeof(*keys);
        while (i < n && strncmp(*argv, keys[i].key, strlen(keys[i].key)) != 0)
            i++;
        if (i == n)
            _exit(EXIT_BAD_START);
        keys[i].read(a, *argv + strlen(keys[i].key));
    }
}

/* Start of the guest. */

/* Sets all signals to their default, because commands inherit ignored signals. */
static void reset_signals(void) {
    /* Uses the system call, because the C library refuses to change the first real-time signals. */
    static const char kernel_act[64]; /* all zero: SIG_DFL, no flags, empty mask */
    for (int i = 1; i <= 64; i++)
        syscall(SYS_rt_sigaction, i, kernel_act, NULL, 8);
}

static void block_signals(void) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
}

/*
 * Opens /dev/null until the descriptors 0, 1 and 2 are in use, so that no other descriptor gets
 * these numbers. A cell machine has no /dev: there descriptor 0 is /dev/null.
 */
static int open_null(const struct guest *g) {
    int fd;
    if (g->worker >= 0)
        return fcntl(0, F_DUPFD_CLOEXEC, 3);
    do {
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    } while (fd >= 0 && fd < 3);
    return fd;
}

static void on_signals(struct guest *g, struct source *src, uint32_t events) {
    (void)events;
    struct signalfd_siginfo info;
    ssize_t n;
    while ((n = read(src->fd, &info, sizeof(info))) < 0 && errno == EINTR)
        ;
    if (n == sizeof(info) && info.ssi_signo == SIGIO)
        covers_serve();
    else
        cmd_reap(g);
}

/*
 * Called when no descriptor is free: accepts a new connection with a reserved descriptor and closes
 * it, since a waiting connection would wake the event loop forever.
 */
static void turn_away(struct guest *g, struct source *src) {
    reserve_release(g);
    int fd = accept4(src->fd, NULL, NULL, SOCK_CLOEXEC);
    close_fd(&fd);
    reserve_restore(g);
}

static void on_connect(struct guest *g, struct source *src, uint32_t events) {
    (void)events;
    int fd = accept4(src->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE))
        turn_away(g, src);
    struct conn *c = fd >= 0 ? conn_open(g, fd, false) : NULL;
    if (c)
        c->is_privileged = src == &g->admin;
}

static int watch_listener(struct guest *g, struct source *src, int fd) {
    *src = (struct source){fd, on_connect, NULL};
    if (fd < 0)
        return 0;
    return fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ? -1 : source_add(g, src, EPOLLIN);
}

static int watch_signals(struct guest *g) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGIO); /* a process waits for a lease: covers.h */
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    g->signals = (struct source){fd, on_signals, NULL};
    return fd < 0 ? -1 : source_add(g, &g->signals, EPOLLIN);
}

static void open_connections(struct guest *g, const struct args *a) {
    struct conn *spawn = a->spawn >= 0 ? conn_open(g, a->spawn, false) : NULL;
    struct conn *ctl = a->ctl >= 0 ? conn_open(g, a->ctl, false) : NULL;
    struct conn *port = a->port >= 0 ? serial_open(g, a->port) : NULL;
    if (spawn)
        spawn->is_privileged = true;
    if (ctl)
        ctl->is_creator = true;
    if (ctl && !spawn)
        ctl->is_privileged = true;
    if (port)
        port->is_privileged = true;
}

/* Raises the limit of descriptors: a full table of commands needs more than a command gets. */
static void raise_files(struct guest *g) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return;
    g->command_files[0] = files.rlim_cur;
    g->command_files[1] = files.rlim_max;
    if (files.rlim_cur >= FILES_MAX)
        return;
    files.rlim_cur = files.rlim_max < FILES_MAX ? files.rlim_max : FILES_MAX;
    setrlimit(RLIMIT_NOFILE, &files);
}

static int guest_init(struct guest *g, const struct args *a) {
    g->relay[0] = g->relay[1] = -1;
    g->lingers = a->lingers;
    g->is_childless = true;
    raise_files(g);
    g->clocks[0] = identity_clock();
    g->clocks[1] = start_clock();
    if (g->clocks[0] < 0 || g->clocks[1] < 0)
        return -1;
    g->null = open_null(g);
    reserve_restore(g);
    g->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (g->null < 0 || g->epoll < 0 || watch_signals(g) < 0 ||
        getrandom(&g->incarnation, sizeof(g->incarnation), GRND_NONBLOCK) < 0)
        return -1;
    if (watch_listener(g, &g->listen, a->listen) < 0 || watch_listener(g, &g->admin, a->admin) < 0)
        return -1;
    covers_begin();
    calls_begin(g);
    open_connections(g, a);
    return identity_set_deadline(a->deadline_ms);
}

/* Event loop. */

static int next_timeout_ms(struct guest *g) {
    if (g->has_backlog || warm_is_due())
        return 0;
    if (!g->has_timers && !covers_are_open())
        return -1;
    int64_t now = now_ns();
    int64_t next = g->has_timers ? cmd_tick(g, now) : INT64_MAX;
    int64_t ports = g->has_timers ? serial_tick(g, now) : INT64_MAX;
    next = ports < next ? ports : next;
    if (next == INT64_MAX)
        g->has_timers = false;
    int64_t fresh = covers_are_open() ? covers_tick(now) : INT64_MAX;
    if (fresh < next)
        next = fresh;
    if (next == INT64_MAX)
        return -1;
    int64_t ms = (next - now + 999999) / 1000000;
    return ms < 0 ? 0 : ms > INT_MAX ? INT_MAX : (int)ms;
}

static int await_events(struct guest *g, struct epoll_event events[EVENTS_MAX]) {
    int wait_ms = next_timeout_ms(g);
    bool drops = g->has_slack && (wait_ms < 0 || wait_ms > SCRATCH_IDLE_MS);
    int n = epoll_wait(g->epoll, events, EVENTS_MAX, drops ? SCRATCH_IDLE_MS : wait_ms);
    if (n == 0 && drops)
        scratch_drop(g);
    g->has_slack = n > 0 || (g->has_slack && !drops);
    return n;
}

static void guest_loop(struct guest *g) {
    warm_begin(true);
    struct epoll_event events[EVENTS_MAX];
    for (;;) {
        int n = await_events(g, events);
        g->has_backlog = false;
        for (int i = 0; i < n; i++) {
            struct source *src = events[i].data.ptr;
            if (src->fd >= 0)
                src->ready(g, src, events[i].events);
        }
        for (uint32_t i = 0; i < g->conn_end; i++)
            if (g->conns[i].src.fd >= 0)
                conn_continue(g, &g->conns[i]);
        if (n == 0 && !g->has_backlog && warm_is_due())
            warm_go_on();
    }
}

/*
 * Runs the loop in a second thread. The first thread (the leader) can handle the timers while the
 * loop waits for a stopped child. On cgroup v1, only the second thread enters the limits, and
 * commands inherit them from it. The out-of-memory killer chooses by leader, and killing the guest
 * would end the machine.
 */
static int work(void *arg) {
    const struct args *a = arg;
    for (int i = 0; i < a->task_count; i++) {
        if (write(a->tasks[i], "0", 1) != 1)
            _exit(EXIT_BAD_START);
        close(a->tasks[i]);
    }
    guest_loop(&the_guest);
    return 0;
}

/*
 * The leader only waits for the two timers. No process in the machine can wake it, which matters
 * because it runs outside the limits. Both threads share errno and other thread state, so no call
 * here may fail or change that state.
 */
static void __attribute__((noreturn)) keep_time(const struct guest *g) {
    struct pollfd clocks[] = {{g->clocks[0], POLLIN, 0}, {g->clocks[1], POLLIN, 0}};
    for (;;) {
        poll(clocks, 2, -1);
        if (clocks[0].revents)
            guest_end();
        if (clocks[1].revents)
            start_prod();
    }
}

uint8_t guest_stack[GUEST_STACK] __attribute__((aligned(16)));

static void __attribute__((noreturn)) work_in_thread(struct args *a) {
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    if (clone(work, guest_stack + sizeof(guest_stack), flags, a) < 0)
        _exit(EXIT_BAD_START);
    keep_time(&the_guest);
}

/* `carrel-guest tool NAME ARG...` runs a tool of the guest outside any machine. */
static int run_tool(char **argv) {
    tool_fn *run = guest_tool_find(argv[0]);
    return run ? run(argv) : EXIT_BAD_START;
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "tool") == 0)
        return run_tool(argv + 2);
    bool is_init = init_is_wanted(argv);
    int cgroups = is_init ? init_run() : -1;
    prctl(PR_SET_DUMPABLE, 0);
    if (geteuid() == 0 && sys_set_gid(getegid()) < 0)
        return EXIT_BAD_START;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    block_signals();
    struct args a = {.ctl = -1, .spawn = -1, .listen = -1, .admin = -1, .port = -1};
    the_guest.worker = -1;
    if (cgroups >= 0)
        tree_begin(&the_guest, cgroups);
    if (is_init)
        serial_add(&the_guest, VM_PORT);
    else
        args_read(&a, argv);
    if (!a.clean)
        reset_signals();
    if (a.task_count > 0)
        the_guest.features |= MSG_FEATURE_MEMORY;
    if (guest_init(&the_guest, &a) < 0)
        return EXIT_BAD_START;
    work_in_thread(&a);
}
