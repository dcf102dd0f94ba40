/*
 * machine_bench: what the machine layer costs, beside fork+exec in the same run.
 *
 * Rounds take one sample of each measure in turn, so that whatever the host does meanwhile meets
 * all of them. A machine is made `early`, as the daemon makes one that is to run a command.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "bench/report.h"
#include "io/outlog_fd.h"
#include "io/place.h"
#include "io/spawn_link.h"
#include "machine/machine.h"

enum { CROWD = 500 };

struct options {
    unsigned rounds, crowd;
    const char *json, *table, *build;
};

struct bench {
    struct loop *loop;
    struct machine_host *host;
    struct machine *made; /* by the last create */
    bool ended;           /* what was waited for has happened */
    bool failed;
    struct err err;
    struct guest_command command;
    uint32_t next_id;
    struct outlog_fd log;
};

/* Waiting: each callback says that it came, and stops the loop. */

static void come(struct bench *b, const struct err *err) {
    b->ended = true;
    if (err && !b->failed) {
        b->failed = true;
        b->err = *err;
    }
    loop_stop(b->loop);
}

static void await(struct bench *b) {
    while (!b->ended)
        loop_run(b->loop);
    b->ended = false;
}

static void on_made(void *arg, struct machine *m, const char *warnings, const struct err *err) {
    struct bench *b = arg;
    (void)warnings;
    b->made = m;
    come(b, err);
}

static void on_done(void *arg, const struct err *err) {
    come(arg, err);
}

static void on_exited(void *arg, const struct msg_exit *m) {
    struct err err;
    if (m->status || m->flags)
        err_set(&err, ERR_INTERNAL, "true ended with %u", m->status);
    come(arg, m->status || m->flags ? &err : NULL);
}

static void on_failed(void *arg, const struct msg_exec_failed *m) {
    struct err err;
    err_set(&err, ERR_INTERNAL, "true did not start: %s", strerror((int)m->number));
    come(arg, &err);
}

static void on_lost(void *arg, const struct err *err) {
    come(arg, err);
}

/* What is measured. */

static void create(struct bench *b, const char *id, bool early) {
    struct machine_spec spec = {.id = id, .image = "host", .early = early};
    box_driver.create(b->host, &spec, on_made, b);
    await(b);
}

static void destroy(struct bench *b, struct machine *m) {
    box_driver.destroy(b->host, m->id, on_done, b);
    await(b);
    machine_free(m);
}

/* With a log, as through the API: its memory is made for the command, too. */
static void exec_true(struct bench *b, struct machine *m, bool logged) {
    static const char *const argv[] = {"/bin/true", NULL}, *const env[] = {"PATH=/bin", NULL};
    struct msg_exec exec = {.flags = MSG_EXEC_QUIET | (logged ? MSG_EXEC_LOG : 0),
                            .uid = 1000,
                            .gid = 1000,
                            .argv = {.v = argv},
                            .env = {.v = env}};
    struct outlog_fd log DEFER(outlog_fd_close) = OUTLOG_FD_NONE;
    if (logged) {
        struct outlog_caps caps = OUTLOG_CAPS_TWO;
        if (outlog_fd_make(&log, &caps, &b->err) < 0) {
            b->failed = true;
            return;
        }
        exec.stdio[1] = exec.stdio[2] = MSG_STDIO_PIPE;
    }
    b->command = (struct guest_command){.id = ++b->next_id,
                                        .arg = b,
                                        .exited = on_exited,
                                        .failed = on_failed,
                                        .refused = on_lost,
                                        .lost = on_lost};
    guest_exec(m->guest, &b->command, &exec, &log.fd, logged);
    await(b);
    guest_forget(m->guest, &b->command, true);
}

static void outside(void) {
    static char path[] = "/bin/true";
    static char *const argv[] = {path, NULL}, *const env[] = {NULL};
    pid_t pid = fork();
    if (pid == 0) {
        execve(path, argv, env);
        _exit(127);
    }
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

struct measures {
    struct samples floor, live, logged, create_exec, whole, create, stats;
};

static uint64_t since(uint64_t *last) {
    uint64_t now = now_ns(), taken = now - *last;
    *last = now;
    return taken;
}

static void one_round(struct bench *b, struct machine *live, struct measures *m) {
    uint64_t t = now_ns();
    outside();
    samples_add(&m->floor, since(&t));
    exec_true(b, live, false);
    samples_add(&m->live, since(&t));
    exec_true(b, live, true);
    samples_add(&m->logged, since(&t));
    struct id id = id_new('m');
    uint64_t began = t = now_ns();
    create(b, id.text, true);
    if (b->failed)
        return;
    exec_true(b, b->made, true);
    samples_add(&m->create_exec, since(&t));
    destroy(b, b->made);
    samples_add(&m->whole, since(&began));
    usleep(2000); /* the pools are filled between requests, not during them */
}

static double ratio(struct samples *a, struct samples *b) {
    uint64_t below = samples_quantile(b, 500);
    return below ? (double)samples_quantile(a, 500) / (double)below : NAN;
}

static void measure_latency(struct bench *b, struct report *r, unsigned rounds) {
    struct measures m = {0};
    struct id id = id_new('m');
    create(b, id.text, false);
    struct machine *live = b->made;
    for (unsigned i = 0; i < rounds && !b->failed; i++)
        one_round(b, live, &m);
    if (live)
        destroy(b, live);
    report_section(r, "one client");
    report_times(r, "floor: fork+exec /bin/true", &m.floor, NULL);
    report_times(r, "exec in a live box", &m.live, &m.floor);
    report_times(r, "the same, its output in a log", &m.logged, &m.floor);
    report_times(r, "create + exec + result", &m.create_exec, &m.floor);
    report_times(r, "create + exec + result + destroy", &m.whole, &m.floor);
    report_bar(r, "exec in a live box / fork+exec, p50", ratio(&m.logged, &m.floor), 2, "x");
    report_bar(r, "create + exec + result / fork+exec, p50", ratio(&m.create_exec, &m.floor), 6,
               "x");
    samples_done(&m.floor), samples_done(&m.live), samples_done(&m.logged);
    samples_done(&m.create_exec), samples_done(&m.whole);
}

/* A crowd of machines. */

struct crowd {
    struct bench *bench;
    unsigned under_way, answered;
    struct machine *machines[CROWD];
    size_t count;
};

static void one_made(void *arg, struct machine *m, const char *warnings, const struct err *err) {
    struct crowd *c = arg;
    (void)warnings;
    if (m)
        c->machines[c->count++] = m;
    c->answered++;
    if (err || c->answered == c->under_way)
        come(c->bench, err);
}

static void one_done(void *arg, const struct err *err) {
    struct crowd *c = arg;
    if (++c->answered == c->under_way || err)
        come(c->bench, err);
}

static void one_stats(void *arg, const struct machine_stats *stats, const struct err *err) {
    (void)stats;
    one_done(arg, err);
}

static double milliseconds(uint64_t ns) {
    return (double)ns / 1e6;
}

static void measure_crowd(struct bench *b, struct report *r, unsigned size) {
    struct crowd *c DEFER_FREE = calloc(1, sizeof(*c));
    struct samples live = {0};
    if (!c)
        abort();
    *c = (struct crowd){.bench = b, .under_way = size};
    uint64_t t = now_ns();
    for (unsigned i = 0; i < size; i++) {
        struct id id = id_new('m');
        struct machine_spec spec = {.id = id.text, .image = "host"};
        box_driver.create(b->host, &spec, one_made, c);
    }
    await(b);
    uint64_t made = since(&t);
    c->answered = 0;
    for (size_t i = 0; i < c->count; i++)
        box_driver.stats(c->machines[i], one_stats, c);
    await(b);
    uint64_t counted = since(&t);
    for (size_t i = 0; i < c->count && !b->failed; i++) {
        t = now_ns();
        exec_true(b, c->machines[i], true);
        samples_add(&live, since(&t));
    }
    c->answered = 0;
    t = now_ns();
    for (size_t i = 0; i < c->count; i++)
        box_driver.destroy(b->host, c->machines[i]->id, one_done, c);
    await(b);
    uint64_t ended = since(&t);
    for (size_t i = 0; i < c->count; i++)
        machine_free(c->machines[i]);
    report_section(r, "many machines at once");
    report_figure(r, "machines", size, "");
    report_figure(r, "all created, asked for at once", milliseconds(made), "ms");
    report_figure(r, "stats of all", milliseconds(counted), "ms");
    report_times(r, "first exec in each, with a log", &live, NULL);
    report_figure(r, "all destroyed", milliseconds(ended), "ms");
    samples_done(&live);
}

/* Programs are found beside the running one, and a run directory of our own is used: from there. */
static int move_in(const struct options *o, char **argv, struct err *err) {
    char dir[] = "/tmp/carrel-bench-XXXXXX", path[64], build[4096], target[4200];
    if (getenv("CARREL_BENCH_DIR"))
        return 0;
    if (!mkdtemp(dir) || !realpath(o->build, build))
        return err_sys(err, "find '%s'", o->build);
    snprintf(path, sizeof(path), "%s/libexec", dir);
    snprintf(target, sizeof(target), "%s/libexec", build);
    if (symlink(target, path) < 0)
        return err_sys(err, "link '%s'", path);
    snprintf(path, sizeof(path), "%s/machine_bench", dir);
    snprintf(target, sizeof(target), "cp /proc/%d/exe %s", (int)getpid(), path);
    if (system(target) != 0)
        return err_set(err, ERR_INTERNAL, "cannot copy to '%s'", path);
    setenv("CARREL_BENCH_DIR", dir, 1);
    snprintf(target, sizeof(target), "%s/run", dir);
    setenv("CARREL_RUN", target, 1);
    snprintf(target, sizeof(target), "%s/home", dir);
    setenv("CARREL_HOME", target, 1);
    execv(path, argv);
    return err_sys(err, "start '%s'", path);
}

static int read_options(int argc, char **argv, struct options *o) {
    static const struct option all[] = {{"quick", no_argument, NULL, 'q'},
                                        {"json", required_argument, NULL, 'j'},
                                        {"table", required_argument, NULL, 't'},
                                        {"build", required_argument, NULL, 'b'},
                                        {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "", all, NULL)) != -1;) {
        if (c == 'q')
            *o = (struct options){20, 20, o->json, o->table, o->build};
        else if (c == 'j')
            o->json = optarg;
        else if (c == 't')
            o->table = optarg;
        else if (c == 'b')
            o->build = optarg;
        else
            return -1;
    }
    return 0;
}

static int run(const struct options *o, struct report *r, struct err *err) {
    struct bench b = {.loop = loop_new(err)};
    b.host = b.loop ? box_driver.open(b.loop, NULL, err) : NULL;
    if (!b.host)
        return -1;
    struct id id = id_new('m');
    create(&b, id.text, false); /* starts the spawner */
    if (!b.failed)
        destroy(&b, b.made);
    sleep(1);
    if (!b.failed)
        measure_latency(&b, r, o->rounds);
    if (!b.failed)
        measure_crowd(&b, r, o->crowd);
    box_driver.close(b.host);
    loop_free(b.loop);
    if (b.failed)
        *err = b.err;
    return b.failed ? -1 : 0;
}

/* The spawner leaves when it is told, for it has no boxes any more; then its directory can go. */
static void move_out(void) {
    char command[128];
    const char *dir = getenv("CARREL_BENCH_DIR");
    struct place place;
    int link DEFER_CLOSE = place_find(&place, NULL) < 0 ? -1 : spawn_try_connect(&place, NULL);
    for (int tries = 0; link >= 0 && spawn_stop(link, NULL) < 0 && tries < 100; tries++)
        usleep(20000);
    snprintf(command, sizeof(command), "%s/run/spawn.sock", dir);
    for (int tries = 0; access(command, F_OK) == 0 && tries < 500; tries++)
        usleep(10000);
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    if (system(command) != 0)
        fprintf(stderr, "machine_bench: '%s' is left\n", dir);
}

int main(int argc, char **argv) {
    struct options o = {.rounds = 400, .crowd = CROWD, .build = "build"};
    struct err err = {0};
    if (read_options(argc, argv, &o) < 0)
        return 64;
    int r = move_in(&o, argv, &err);
    struct report *report = report_new("machine");
    if (r == 0) {
        r = run(&o, report, &err);
        move_out();
    }
    if (r == 0)
        r = report_show(report, o.table, o.json, &err);
    if (r < 0)
        fprintf(stderr, "machine_bench: %s\n", err.text);
    report_free(report);
    return r == 0 ? 0 : 1;
}
