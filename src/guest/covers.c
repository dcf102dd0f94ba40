#include "guest/covers.h"

#include "base/text/procview.h"
#include "guest/scratch.h"
#include "guest/sys.h"
#include "guest/usage.h"

/* How old a cover may get while it is open, or between two processes that open it. */
#define OPEN_NS 900000000
/*
 * The same for uptime, the first time; then twice as long each time. Scripts measure time by it,
 * and ps subtracts start times of processes from it: it must never be too small.
 */
#define UPTIME_NS 5000000
/* Time by which the guest may be late, and one tick, as start times are in ticks. */
#define LATE_NS 10000000
#define TICK_NS (1000000000 / PROCVIEW_HZ)

enum { STAT_SIZE = 256 << 10 };

static struct procview_load load;
static bool any_open;
static int64_t valid_ns; /* how long the text that is being written will be there */
static uint64_t born_ns; /* start of the guest, by the clock of CLOCK_BOOTTIME */

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static size_t write_meminfo(void) {
    struct procview_memory m;
    usage_memory(&m);
    return procview_meminfo(scratch_text, sizeof(scratch_text), &m);
}

static size_t write_stat(void) {
    struct usage_processes all;
    uint64_t boot_ns = clock_ns(CLOCK_BOOTTIME);
    struct procview_cpu c = {
        .cpus = usage_cpus(),
        .up = (boot_ns - born_ns) / TICK_NS,
        .btime = (clock_ns(CLOCK_REALTIME) - boot_ns) / 1000000000,
    };
    usage_processes(&all);
    usage_cpu(&all, &c.user, &c.system);
    c.processes = all.last_pid;
    c.running = all.running;
    c.blocked = all.blocked;
    return procview_stat(scratch_text, STAT_SIZE, &c);
}

static size_t write_cpuinfo(void) {
    size_t n = 0;
    for (ssize_t got; n < sizeof(scratch_text); n += (size_t)got)
        if ((got = pread(usage_files.processors, scratch_text + n, sizeof(scratch_text) - n,
                         (off_t)n)) <= 0)
            break;
    return procview_cpuinfo(scratch_text, n, usage_cpus());
}

static size_t write_loadavg(void) {
    struct usage_processes all;
    uint64_t user, system;
    usage_processes(&all);
    usage_cpu(&all, &user, &system);
    procview_load_advance(&load,
                          &(struct procview_load_now){.ns = (uint64_t)now_ns(),
                                                      .ticks = user + system,
                                                      .runnable = all.running + all.blocked,
                                                      .capacity_milli = usage_capacity_milli()});
    return procview_loadavg(scratch_text, sizeof(scratch_text), &load, all.running, all.threads,
                            all.last_pid);
}

/* Shows the uptime at the end of the time that the text is there to be read. */
static size_t write_uptime(void) {
    struct usage_processes all = {0};
    uint64_t boot_ns = clock_ns(CLOCK_BOOTTIME);
    struct procview_cpu c = {.cpus = usage_cpus(), .up = (boot_ns - born_ns) / TICK_NS};
    if (usage_files.cpu < 0)
        usage_processes(&all);
    usage_cpu(&all, &c.user, &c.system);
    return procview_uptime(scratch_text, sizeof(scratch_text),
                           (boot_ns + (uint64_t)valid_ns + LATE_NS) / TICK_NS, &c);
}

enum { LOAD_SIZE = 32 };

static struct cover {
    const char *name;
    size_t (*write)(void);
    int64_t first_ns; /* how long the text is valid after a process has waited for it */
    int fd;           /* -1: this file of /proc is not covered */
    bool leased;
    int64_t due_ns;  /* without a lease: when to take it, or to write the cover again */
    int64_t wait_ns; /* time between the last two of these */
    size_t size;     /* of the text in the file */
} covers[] = {
    {"meminfo", write_meminfo, OPEN_NS, -1, false, 0, 0, 0},
    {"stat", write_stat, OPEN_NS, -1, false, 0, 0, 0},
    {"cpuinfo", write_cpuinfo, OPEN_NS, -1, false, 0, 0, 0},
    {"loadavg", write_loadavg, OPEN_NS, -1, false, 0, 0, LOAD_SIZE},
    {"uptime", write_uptime, UPTIME_NS, -1, false, 0, 0, 0},
};

enum { COVERS = sizeof(covers) / sizeof(*covers) };

bool covers_add(const char *name, unsigned n, int fd) {
    for (int i = 0; i < COVERS; i++)
        if (strlen(covers[i].name) == n && memcmp(covers[i].name, name, n) == 0) {
            covers[i].fd = fd;
            return true;
        }
    return false;
}

static bool cover_lease(struct cover *c) {
    c->leased = fcntl(c->fd, F_SETLEASE, F_WRLCK) == 0;
    any_open |= !c->leased;
    return c->leased;
}

/*
 * A process that reads while a shorter text is written would see the end of the older one behind
 * it. So the last line is filled up with spaces where a number has lost a digit. The load is never
 * shorter than LOAD_SIZE: a process that asks whether more follows would see the end of a longer
 * one.
 */
static size_t fill_up(size_t n, size_t size) {
    enum { FEW = 64 };
    if (n == 0 || n >= size || size - n > FEW || size > sizeof(scratch_text))
        return n;
    memset(scratch_text + n - 1, ' ', size - n);
    scratch_text[size - 1] = '\n';
    return size;
}

/* Cuts the file after writing, so that it never ends before the text. */
static void cover_write(struct cover *c, int64_t wait_ns) {
    valid_ns = c->wait_ns = wait_ns < OPEN_NS ? wait_ns : OPEN_NS;
    size_t n = c->size = fill_up(c->write(), c->size);
    if (pwrite(c->fd, scratch_text, n, 0) == (ssize_t)n)
        (void)!ftruncate(c->fd, (off_t)n);
    if (n > 4096)
        scratch_text_drop();
    c->due_ns = now_ns() + c->wait_ns;
}

void covers_begin(void) {
    born_ns = clock_ns(CLOCK_BOOTTIME);
    load.at_ns = (uint64_t)now_ns();
    for (int i = 0; i < COVERS; i++)
        if (covers[i].fd >= 0) {
            /* The kernel would signal the thread that takes the lease, if no process is set. */
            fcntl(covers[i].fd, F_SETOWN, getpid());
            cover_lease(&covers[i]);
        }
}

bool covers_have(const struct stat *st) {
    struct stat own;
    for (int i = 0; i < COVERS; i++)
        if (covers[i].fd >= 0 && fstat(covers[i].fd, &own) == 0 && own.st_dev == st->st_dev)
            return true;
    return false;
}

bool covers_are_open(void) {
    return any_open;
}

void covers_serve(void) {
    for (struct cover *c = covers; c < covers + COVERS; c++)
        if (c->leased && fcntl(c->fd, F_GETLEASE) != F_WRLCK) {
            cover_write(c, c->first_ns);
            c->leased = false;
            any_open = true;
            fcntl(c->fd, F_SETLEASE, F_UNLCK);
        }
}

int64_t covers_tick(int64_t now) {
    int64_t next = INT64_MAX;
    any_open = false;
    for (struct cover *c = covers; c < covers + COVERS; c++) {
        if (c->fd < 0 || c->leased)
            continue;
        if (c->due_ns <= now && !cover_lease(c))
            cover_write(c, 2 * c->wait_ns);
        any_open |= !c->leased;
        if (!c->leased && c->due_ns < next)
            next = c->due_ns;
    }
    return next;
}
