#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fdio.h"
#include "bench.h"
#include "bench/settle.h"
#include "io/launch.h"
#include "io/spawn_link.h"

enum { ANSWER_MAX_MS = 30000 };

void bench_fail(const struct err *err) {
    fprintf(stderr, "daemon_bench: %s\n", err->text);
    exit(1);
}

int bench_try(struct http_client *http, const char *method, const char *target, const char *body,
              struct buf *ret, struct err *err) {
    const struct http_head *head = NULL;
    const struct http_request r = {
        .method = method, .target = target, .body = body, .n = body ? strlen(body) : 0};
    ret->len = 0;
    if (http_client_send(http, &r, err) < 0 || http_client_answer(http, &head, err) < 0 ||
        http_client_collect(http, ret, err) < 0)
        return -1;
    if (head->status < 300)
        return 0;
    return err_set(err, ERR_INTERNAL, "%s %s: %d %s", method, target, head->status, ret->data);
}

void bench_ask(struct bench *b, const char *method, const char *target, const char *body,
               struct buf *ret) {
    struct err err;
    if (bench_try(b->http, method, target, body, ret, &err) < 0)
        bench_fail(&err);
}

void bench_create(struct bench *b, char ret_id[BENCH_ID]) {
    bench_create_with(b, "manual", ret_id);
}

void bench_create_with(struct bench *b, const char *steps, char ret_id[BENCH_ID]) {
    struct buf answer DEFER(buf_done) = BUF(1 << 16);
    char body[64];
    snprintf(body, sizeof(body), "{\"steps\":\"%s\"}", steps);
    bench_ask(b, "POST", "/v1/machines", body, &answer);
    const char *at = strstr(answer.data, "\"id\":\"m-");
    snprintf(ret_id, BENCH_ID, "%.14s", at ? at + 6 : "");
}

void bench_destroy(struct bench *b, const char *id) {
    struct buf answer DEFER(buf_done) = BUF(1 << 16);
    char target[BENCH_TARGET];
    snprintf(target, sizeof(target), "/v1/machines/%s", id);
    bench_ask(b, "DELETE", target, NULL, &answer);
}

void bench_exec_target(const char *id, char ret[BENCH_TARGET]) {
    snprintf(ret, BENCH_TARGET, "/v1/machines/%s/execs", id);
}

static int run_program(const char *const *argv) {
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    return status;
}

uint64_t bench_outside(const char *const *argv) {
    uint64_t began = now_ns();
    if (run_program(argv) != 0) {
        fprintf(stderr, "daemon_bench: '%s' failed\n", argv[0]);
        exit(1);
    }
    return now_ns() - began;
}

static pid_t start_daemon(const struct bench *b, const char *preload) {
    char program[4096], fd[16], ready = 0;
    int ends[2];
    snprintf(program, sizeof(program), "%s/libexec/carrel-daemon", b->build);
    if (pipe(ends) < 0)
        exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        snprintf(fd, sizeof(fd), "%d", ends[1]);
        if (preload)
            setenv("LD_PRELOAD", preload, 1);
        execl(program, "carrel-daemon", "--run", b->place.run, "--home", b->place.home,
              "--ready-fd", fd, "--conf", "/nonexistent", (char *)NULL);
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

struct http_client *bench_connect(const struct bench *b) {
    char path[PLACE_SIZE + 16];
    struct err err;
    snprintf(path, sizeof(path), "%s/carrel.sock", b->place.run);
    struct http_client *http = http_client_unix(path, &err);
    if (!http)
        bench_fail(&err);
    http_client_set_timeout(http, ANSWER_MAX_MS);
    return http;
}

static void find_place(struct bench *b) {
    struct err err;
    snprintf(b->dir, sizeof(b->dir), "/var/tmp/daemon-bench-XXXXXX");
    if (!mkdtemp(b->dir))
        exit(1);
    snprintf(b->place.run, sizeof(b->place.run), "%s/%s", run_base(), strrchr(b->dir, '/') + 1);
    snprintf(b->place.home, sizeof(b->place.home), "%s/home", b->dir);
    char *build DEFER_FREE = realpath(b->build, NULL); /* a spawner works elsewhere */
    snprintf(b->place.libexec, sizeof(b->place.libexec), "%.1000s/libexec", build ? build : "");
    if (place_make(&b->place, &err) < 0)
        bench_fail(&err);
}

/* The bench that runs now; NULL: none. A measure that fails calls exit(). */
static struct bench *started;

/* Machines outlive their daemon, so they are deleted before it ends. */
static void stop_started(void) {
    char carrel[PLACE_SIZE + 16];
    if (!started)
        return;
    snprintf(carrel, sizeof(carrel), "%s/../carrel", started->place.libexec);
    setenv("CARREL_RUN", started->place.run, 1);
    setenv("CARREL_HOME", started->place.home, 1);
    run_program((const char *const[]){carrel, "rm", "--all", "--yes", NULL});
    bench_stop(started);
}

static void start_in_place(struct bench *b, const char *preload) {
    static bool registered;
    struct err err;
    if (!registered)
        registered = atexit(stop_started) == 0;
    b->daemon = start_daemon(b, preload);
    started = b;
    b->http = bench_connect(b);
    b->spawner = spawn_try_connect(&b->place, &err);
    if (b->spawner < 0)
        bench_fail(&err);
}

void bench_start(struct bench *b, const char *preload) {
    find_place(b);
    start_in_place(b, preload);
}

void bench_start_bare(struct bench *b) {
    char guest[PLACE_SIZE + 16];
    const char *const words[] = {"--guest", guest, "--ready-boxes", "0", NULL};
    struct err err;
    find_place(b);
    snprintf(guest, sizeof(guest), "%s/carrel-guest", b->place.libexec);
    if (launch(&b->place, "carrel-spawn", "spawn.log", words, NULL, &err) < 0)
        bench_fail(&err);
    start_in_place(b, NULL);
}

void bench_rest(struct bench *b, unsigned boxes) {
    struct err err;
    if (settle(b->spawner, SETTLE_RESTED, boxes, NULL, &err) < 0)
        bench_fail(&err);
}

void bench_stop(struct bench *b) {
    struct err err;
    http_client_freep(&b->http);
    kill(b->daemon, SIGTERM);
    waitpid(b->daemon, NULL, 0);
    for (int i = 0; i < 500 && spawn_stop(b->spawner, &err) < 0; i++)
        usleep(20000); /* until the last box is gone */
    close_fd(&b->spawner);
    usleep(200000);
    started = NULL;
    run_program((const char *const[]){"/bin/rm", "-rf", b->dir, b->place.run, NULL});
}
