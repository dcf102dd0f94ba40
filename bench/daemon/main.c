/*
 * daemon_bench: what a machine and a command cost through the daemon's HTTP, on one kept
 * connection, beside fork+exec and bubblewrap; all rounds interleaved, so that noise hits all
 * alike.
 * `--slow-sync LIB` runs the daemon with 5 ms added to every fdatasync (a preloaded library).
 */
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "bench/report.h"
#include "io/http_client.h"
#include "io/place.h"
#include "io/spawn_link.h"

enum { ROUNDS = 400, QUICK = 10 };

static struct http_client *http;

static void fail(const struct err *err) {
    fprintf(stderr, "daemon_bench: %s\n", err->text);
    exit(1);
}

/* One request; the whole answer in *ret, which is emptied first. */
static void ask(const char *method, const char *target, const char *body, struct buf *ret) {
    const struct http_head *head;
    struct err err;
    const struct http_request r = {
        .method = method, .target = target, .body = body, .n = body ? strlen(body) : 0};
    ret->len = 0;
    if (http_client_send(http, &r, &err) < 0 || http_client_answer(http, &head, &err) < 0 ||
        http_client_collect(http, ret, &err) < 0)
        fail(&err);
    if (head->status >= 300) {
        err_set(&err, ERR_INTERNAL, "%s %s: %d %s", method, target, head->status, ret->data);
        fail(&err);
    }
}

static void machine_of(const struct buf *answer, char ret[32]) {
    const char *at = strstr(answer->data, "\"id\":\"m-");
    snprintf(ret, 32, "%.14s", at ? at + 6 : "");
}

static uint64_t outside(const char *const *argv) {
    uint64_t began = now_ns();
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    if (status != 0) {
        fprintf(stderr, "daemon_bench: '%s' failed\n", argv[0]);
        exit(1);
    }
    return now_ns() - began;
}

static const char *const plain[] = {"/bin/true", NULL};
static const char *const bwrap[] = {
    "/usr/bin/bwrap", "--unshare-all", "--ro-bind", "/",         "/", "--proc",
    "/proc",          "--dev",         "/dev",      "/bin/true", NULL};
static const char exec_true[] = "{\"argv\":[\"/bin/true\"]}";

/* Three ways through the daemon. */
static uint64_t run_once(struct buf *answer) {
    uint64_t began = now_ns();
    ask("POST", "/v1/run", "{\"exec\":{\"argv\":[\"/bin/true\"]}}", answer);
    return now_ns() - began;
}

static uint64_t create_and_exec(struct buf *answer) {
    char id[32], target[80];
    uint64_t began = now_ns();
    ask("POST", "/v1/machines", "{}", answer);
    machine_of(answer, id);
    snprintf(target, sizeof(target), "/v1/machines/%s/execs", id);
    ask("POST", target, exec_true, answer);
    uint64_t took = now_ns() - began;
    snprintf(target, sizeof(target), "/v1/machines/%s", id);
    ask("DELETE", target, NULL, answer);
    return took;
}

static uint64_t exec_in(const char *target, struct buf *answer) {
    uint64_t began = now_ns();
    ask("POST", target, exec_true, answer);
    return now_ns() - began;
}

static pid_t start_daemon(const char *build, const char *dir, const char *preload) {
    char program[4096], run[4096], home[4096], fd[16], ready = 0;
    int ends[2];
    snprintf(program, sizeof(program), "%s/libexec/carrel-daemon", build);
    snprintf(run, sizeof(run), "%s/run", dir);
    snprintf(home, sizeof(home), "%s/home", dir);
    if (pipe(ends) < 0)
        exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        snprintf(fd, sizeof(fd), "%d", ends[1]);
        if (preload)
            setenv("LD_PRELOAD", preload, 1);
        execl(program, "carrel-daemon", "--run", run, "--home", home, "--ready-fd", fd, "--conf",
              "/nonexistent", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    if (read(ends[0], &ready, 1) != 1 || ready != 'r') {
        fputs("daemon_bench: the daemon did not start\n", stderr);
        exit(1);
    }
    close(ends[0]);
    return pid;
}

static void measure(struct report *r, unsigned rounds, bool has_bwrap) {
    struct buf answer DEFER(buf_done) = BUF(1 << 20);
    struct samples floor = {0}, peer = {0}, run = {0}, pair = {0}, live = {0};
    char id[32], target[80];
    ask("POST", "/v1/machines", "{}", &answer);
    machine_of(&answer, id);
    snprintf(target, sizeof(target), "/v1/machines/%s/execs", id);
    for (unsigned i = 0; i < rounds + 10; i++) {
        uint64_t t[] = {outside(plain), has_bwrap ? outside(bwrap) : 0, run_once(&answer),
                        create_and_exec(&answer), exec_in(target, &answer)};
        struct samples *into[] = {&floor, &peer, &run, &pair, &live};
        usleep(5000); /* the pool fills while nobody asks */
        for (size_t k = 0; i >= 10 && k < 5; k++)
            if (t[k])
                samples_add(into[k], t[k]);
    }
    snprintf(target, sizeof(target), "/v1/machines/%s", id);
    ask("DELETE", target, NULL, &answer);
    double f = (double)samples_quantile(&floor, 500), b = (double)samples_quantile(&peer, 500);
    double p = (double)samples_quantile(&pair, 500), x = (double)samples_quantile(&live, 500);
    report_times(r, "fork+exec of true", &floor, NULL);
    if (has_bwrap)
        report_times(r, "bwrap of true", &peer, &floor);
    report_times(r, "POST /v1/run: machine, true, result", &run, &floor);
    report_times(r, "create, then exec true: two requests", &pair, &floor);
    report_times(r, "exec true in a live box", &live, &floor);
    report_bar(r, "create + exec / fork+exec, p50", p / f, 6, "x");
    if (has_bwrap)
        report_bar(r, "create + exec / bwrap, p50", p / b, 0.6, "x");
    report_bar(r, "exec in a live box / fork+exec, p50", x / f, 2, "x");
}

static void leave_nothing(const struct place *place, const char *dir) {
    struct err err;
    int link = spawn_try_connect(place, &err);
    for (int i = 0; i < 100 && link >= 0 && spawn_stop(link, &err) < 0; i++)
        usleep(20000); /* until the last box is gone */
    if (link >= 0)
        close(link);
    usleep(200000);
    const char *const rm[] = {"/bin/rm", "-rf", dir, NULL};
    outside(rm);
}

int main(int argc, char **argv) {
    static const struct option options[] = {{"build", required_argument, NULL, 'b'},
                                            {"json", required_argument, NULL, 'j'},
                                            {"slow-sync", required_argument, NULL, 's'},
                                            {"quick", no_argument, NULL, 'q'},
                                            {NULL, 0, NULL, 0}};
    const char *build = "build", *json = NULL, *preload = NULL;
    unsigned rounds = ROUNDS;
    char dir[] = "/var/tmp/daemon-bench-XXXXXX", path[4096];
    struct err err;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 'b')
            build = optarg;
        else if (c == 'j')
            json = optarg;
        else if (c == 's')
            preload = optarg;
        else
            rounds = QUICK;
    }
    if (!mkdtemp(dir))
        return 1;
    struct place place = {0};
    snprintf(place.run, sizeof(place.run), "%s/run", dir);
    snprintf(place.home, sizeof(place.home), "%s/home", dir);
    if (place_make(&place, &err) < 0)
        fail(&err);
    pid_t daemon = start_daemon(build, dir, preload);
    snprintf(path, sizeof(path), "%s/run/carrel.sock", dir);
    http = http_client_unix(path, &err);
    if (!http)
        fail(&err);
    struct report *r = report_new("daemon");
    report_section(r, preload ? "Daemon, 5 ms added to every sync" : "Daemon");
    measure(r, rounds, access(bwrap[0], X_OK) == 0);
    http_client_free(http);
    kill(daemon, SIGTERM);
    waitpid(daemon, NULL, 0);
    leave_nothing(&place, dir);
    report_print(r, stdout);
    int status = report_is_whole(r) ? 0 : 1;
    if (json && report_write_json(r, json, &err) < 0)
        fail(&err);
    report_free(r);
    return status;
}
