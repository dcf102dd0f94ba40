/*
 * What a write costs the daemon's loop, on this disk and on one that is 5 ms slower.
 *
 *   store_bench [--quick] [--dir DIR] [--table FILE] [--json FILE]
 *
 * The delay is put in by this program's own fdatasync() and fsync(), which the libraries find
 * first.
 */
#include <ftw.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/defer.h"
#include "bench/report.h"
#include "store/events.h"
#include "store/execs.h"
#include "store/machines.h"
#include "store/owners.h"

static atomic_int delay_ms;
static atomic_ullong syncs_elsewhere, syncs_here;

static int slow_sync(long call, int fd) {
    if (syscall(SYS_gettid) == getpid())
        atomic_fetch_add(&syncs_here, 1);
    else
        atomic_fetch_add(&syncs_elsewhere, 1);
    int ms = atomic_load(&delay_ms);
    if (ms)
        nanosleep(&(struct timespec){.tv_nsec = ms * 1000000l}, NULL);
    return (int)syscall(call, fd);
}

int fdatasync(int fd) {
    return slow_sync(SYS_fdatasync, fd);
}

int fsync(int fd) {
    return slow_sync(SYS_fsync, fd);
}

struct options {
    bool quick;
    const char *dir, *table, *json;
};

static void must(int status, const struct err *err) {
    if (status == 0)
        return;
    fprintf(stderr, "store_bench: %s\n", err->text);
    exit(1);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st, (void)type, (void)at;
    return remove(path);
}

static struct machine_row machine_of(int64_t number) {
    struct machine_row row = {.owner = "bench",
                              .state = MACHINE_CREATING,
                              .kind = "box",
                              .image = "host",
                              .created_ms = number,
                              .idle_action = IDLE_PAUSE,
                              .steps = STEPS_MANUAL,
                              .mem_bytes = 1 << 29,
                              .cpu_milli = 1000,
                              .metadata = (char *)"{\"project\":\"bench\"}"};
    struct id id = id_new('m');
    memcpy(row.id, id.text, sizeof(row.id));
    return row;
}

static struct exec_row exec_of(const struct machine_row *m) {
    struct exec_row row = {.owner = "bench",
                           .state = EXEC_STARTING,
                           .created_ms = m->created_ms,
                           .argv = (char *)"[\"sh\",\"-c\",\"echo hello\"]",
                           .user = "user"};
    struct id id = id_new('x');
    memcpy(row.id, id.text, sizeof(row.id));
    memcpy(row.machine, m->id, sizeof(row.machine));
    return row;
}

enum measure { CREATE, RUNNING, EXEC, FINISH, EVENT, END, LOG, QUOTA, CYCLE, MEASURES };
static const char *const names[MEASURES] = {
    [CREATE] = "machine added",
    [RUNNING] = "machine set running",
    [EXEC] = "exec added",
    [FINISH] = "exec finished",
    [EVENT] = "event added",
    [END] = "machine ended",
    [LOG] = "journal record appended",
    [QUOTA] = "quota summed over 200 live machines",
    [CYCLE] = "create, exec, end: all of the above",
};

struct run {
    struct store *store;
    struct samples samples[MEASURES];
    uint64_t mark;
};

static void lap(struct run *r, enum measure m) {
    uint64_t now = now_ns();
    samples_add(&r->samples[m], now - r->mark);
    r->mark = now_ns();
}

static void log_one(struct run *r, enum journal_kind kind, const struct machine_row *m,
                    struct err *err) {
    const struct journal_record record = {.kind = kind,
                                          .owner = "bench",
                                          .client = "uid=1000 pid=4711",
                                          .verb = "exec.start",
                                          .machine = m->id,
                                          .argv = (const char *const[]){"sh", "-c", "echo hello"},
                                          .argc = 3};
    must(store_log(r->store, &record, NULL, err), err);
    lap(r, LOG);
}

/* What the daemon writes for a machine that runs one command. */
static void cycle(struct run *r, int64_t number) {
    struct err err;
    char existing[ID_SIZE];
    struct quota used;
    int64_t event;
    struct machine_row m = machine_of(number);
    struct exec_row x = exec_of(&m);
    struct event_row e = {.owner = "bench", .type = "machine.created", .time_ms = number};
    memcpy(e.machine, m.id, sizeof(e.machine));
    uint64_t start = r->mark = now_ns();
    must(store_quota_used(r->store, "bench", NULL, &used, &err), &err);
    lap(r, QUOTA);
    log_one(r, JOURNAL_INTENT, &m, &err);
    must(store_machine_add(r->store, &m, existing, &err), &err);
    lap(r, CREATE);
    must(store_machine_set_state(r->store, m.id, MACHINE_RUNNING, STATE_BY_OWNER, &err), &err);
    lap(r, RUNNING);
    must(store_event_add(r->store, &e, &event, &err), &err);
    lap(r, EVENT);
    must(store_exec_add(r->store, &x, existing, &err), &err);
    lap(r, EXEC);
    x.state = EXEC_EXITED;
    must(store_exec_finish(r->store, &x, &err), &err);
    lap(r, FINISH);
    must(store_machine_end(r->store, m.id, number, "asked", &err), &err);
    lap(r, END);
    log_one(r, JOURNAL_RESULT, &m, &err);
    samples_add(&r->samples[CYCLE], now_ns() - start);
}

static void open_store(struct run *r, const char *home) {
    struct err err;
    struct store_options options = {.home = home};
    must(store_open(&options, &r->store, &err), &err);
    struct owner_row owner = {.name = "bench", .uid = -1};
    must(store_owner_put(r->store, &owner, &err), &err);
    char existing[ID_SIZE];
    for (int64_t i = 0; i < 200; i++) {
        struct machine_row m = machine_of(i);
        must(store_machine_add(r->store, &m, existing, &err), &err);
    }
}

static void measure(const struct options *o, struct report *report, int ms) {
    struct run r = {0};
    char home[512], title[96];
    unsigned long long cycles = o->quick ? 300 : 20000;
    snprintf(home, sizeof(home), "%s/carrel-bench-XXXXXX", o->dir);
    if (!mkdtemp(home))
        exit(1);
    atomic_store(&delay_ms, ms);
    open_store(&r, home);
    atomic_store(&syncs_here, 0);
    atomic_store(&syncs_elsewhere, 0);
    uint64_t start = now_ns();
    /* A pause now and then, as between requests: the log is then copied in quiet moments too. */
    for (unsigned long long i = 0; i < cycles; i++) {
        cycle(&r, (int64_t)i);
        if (i % 100 == 99)
            nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    double seconds = (double)(now_ns() - start) / 1e9;
    struct store_stats stats;
    store_stats(r.store, &stats);

    snprintf(title, sizeof(title),
             ms ? "The same with %d ms added to every sync" : "Writes of the store", ms);
    report_section(report, title);
    for (int i = 0; i < MEASURES; i++)
        report_times(report, names[i], &r.samples[i], NULL);
    report_figure(report, "99.9 % of cycles within",
                  (double)samples_quantile(&r.samples[CYCLE], 999) / 1000, "µs");
    report_figure(report, "cycles a second", (double)cycles / seconds, "1/s");
    report_figure(report, "syncs by the loop's thread", (double)atomic_load(&syncs_here), "");
    report_figure(report, "syncs by the store's thread", (double)atomic_load(&syncs_elsewhere), "");
    report_figure(report, "log copied and begun anew", (double)stats.checkpoints, "times");
    report_figure(report, "log at the end", (double)stats.wal_bytes / 1048576, "MiB");
    store_close(r.store);
    for (int i = 0; i < MEASURES; i++)
        samples_done(&r.samples[i]);
    nftw(home, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void parse_options(int argc, char **argv, struct options *o) {
    static const struct option longs[] = {{"quick", no_argument, NULL, 'q'},
                                          {"dir", required_argument, NULL, 'd'},
                                          {"table", required_argument, NULL, 't'},
                                          {"json", required_argument, NULL, 'j'},
                                          {0}};
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        if (c == 'q')
            o->quick = true;
        else if (c == 'd')
            o->dir = optarg;
        else if (c == 't')
            o->table = optarg;
        else if (c == 'j')
            o->json = optarg;
        else
            exit(2);
    }
}

int main(int argc, char **argv) {
    struct options o = {.dir = "/var/tmp"};
    struct err err;
    parse_options(argc, argv, &o);
    struct report *report = report_new("store");
    measure(&o, report, 0);
    measure(&o, report, 5);
    must(report_show(report, o.table, o.json, &err), &err);
    bool whole = report_is_whole(report);
    report_free(report);
    return whole ? 0 : 1;
}
