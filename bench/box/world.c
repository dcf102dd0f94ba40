#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "bench/settle.h"
#include "bench/stats.h"
#include "io/spawn_link.h"

enum { END_MS = 30000, USER = 1000 };

/* Set by a signal: the next step fails, and the way out cleans up. */
static volatile sig_atomic_t interrupted;

static void interrupt(int signal) {
    (void)signal;
    interrupted = 1;
}

static int go_on(struct err *err) {
    return interrupted ? err_set(err, ERR_GONE, "interrupted") : 0;
}

/* The spawner that spawn_connect() would start has ready boxes. */
static int start_bare(const struct place *place, struct err *err) {
    char program[PLACE_SIZE + 16], guest[PLACE_SIZE + 16], fd[16], word = 0;
    int ready[2];
    snprintf(program, sizeof(program), "%s/carrel-spawn", place->libexec);
    snprintf(guest, sizeof(guest), "%s/carrel-guest", place->libexec);
    if (mkdir(place->run, 0700) < 0 || mkdir(place->home, 0700) < 0 || pipe(ready) < 0)
        return err_sys(err, "make '%s'", place->run);
    snprintf(fd, sizeof(fd), "%d", ready[1]);
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        if (fork() == 0)
            execl(program, "carrel-spawn", "--run", place->run, "--home", place->home, "--guest",
                  guest, "--ready-fd", fd, "--ready-boxes", "0", (char *)NULL);
        _exit(0);
    }
    close(ready[1]);
    waitpid(pid, NULL, 0);
    ssize_t n = read(ready[0], &word, 1);
    close(ready[0]);
    return n == 1 && word == 'r' ? 0 : err_set(err, ERR_UNSUPPORTED, "no spawner: see spawn.log");
}

/* `carrel run` goes through the daemon: the first one starts it, beside our spawner. */
static int start_daemon(const struct world *w, struct err *err) {
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        execl(w->carrel, w->carrel, "run", "-q", "--", "/bin/true", (char *)NULL);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0)
        return err_set(err, ERR_UNSUPPORTED, "`carrel run` fails here: see carrel.log");
    return 0;
}

static void stop_daemon(const struct world *w) {
    char path[PLACE_SIZE + 16], text[32] = "";
    snprintf(path, sizeof(path), "%s/carrel.pid", w->place.run);
    read_file_at(AT_FDCWD, path, text, sizeof(text));
    pid_t pid = (pid_t)strtol(text, NULL, 10);
    if (pid <= 1 || kill(pid, SIGTERM) < 0)
        return;
    for (uint64_t end = now_ns() + END_MS * 1000000ull; kill(pid, 0) == 0 && now_ns() < end;)
        usleep(5000);
}

static int connect_world(struct world *w, enum world_kind kind, struct err *err) {
    if (kind == WORLD_BARE && start_bare(&w->place, err) < 0)
        return -1;
    if (kind == WORLD_USUAL) {
        setenv("CARREL_RUN", w->place.run, 1);
        setenv("CARREL_HOME", w->place.home, 1);
    }
    w->link = spawn_connect(&w->place, NULL, err);
    if (w->link < 0)
        return -1;
    return kind == WORLD_USUAL ? start_daemon(w, err) : 0;
}

int world_open(struct world *w, const char *build, enum world_kind kind, struct err *err) {
    const char *bare = kind == WORLD_BARE ? ".bare" : "";
    char full[PLACE_SIZE - 64];
    *w = (struct world){.link = -1};
    ssize_t n = (ssize_t)strlen(build);
    if (n >= (ssize_t)sizeof(full) || !realpath(build, full))
        return err_sys(err, "find build folder '%s'", build);
    snprintf(w->carrel, PLACE_SIZE, "%s/carrel", full);
    snprintf(w->tools, PLACE_SIZE, "%s/bench/box", full);
    snprintf(w->place.libexec, PLACE_SIZE, "%s/libexec", full);
    snprintf(w->place.run, PLACE_SIZE, "%s/carrel-bench.%d%s", run_base(), (int)getpid(), bare);
    snprintf(w->place.home, PLACE_SIZE, "/var/tmp/carrel-bench.%d%s", (int)getpid(), bare);
    sigaction(SIGINT, &(struct sigaction){.sa_handler = interrupt}, NULL);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = interrupt}, NULL);
    return connect_world(w, kind, err);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st, (void)type, (void)at;
    if (remove(path) == 0 || errno == ENOENT)
        return 0;
    fprintf(stderr, "box_bench: remove '%s': %m\n", path);
    return 0;
}

static void remove_tree(const char *path) {
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) != 0)
        fprintf(stderr, "box_bench: '%s' could not be removed\n", path);
}

int world_settle(const struct world *w, unsigned boxes, struct err *err) {
    return settle(w->link, SETTLE_RESTED, boxes, go_on, err);
}

int world_empty(const struct world *w, struct err *err) {
    return settle(w->link, SETTLE_EMPTY, 0, go_on, err);
}

int world_reaped(const struct world *w, struct err *err) {
    return settle(w->link, SETTLE_REAPED, 0, go_on, err);
}

/* Boxes that linger after a measure that failed. */
static void end_boxes(const struct world *w) {
    char json[PLAN_TEXT_SIZE], id[ID_SIZE];
    struct err err;
    const char *at;
    while (spawn_status(w->link, json, sizeof(json), &err) == 0 &&
           (at = strstr(json, "\"id\":\""))) {
        snprintf(id, sizeof(id), "%s", at + 6);
        if (spawn_destroy(w->link, id, &err) < 0 && err.code != ERR_NOT_FOUND)
            break;
    }
}

/* The spawner holds its lock until it has gone. */
static void await_end(const struct world *w) {
    char path[PLACE_SIZE + 16];
    snprintf(path, sizeof(path), "%s/spawn.lock", w->place.run);
    int lock DEFER_CLOSE = open(path, O_RDWR | O_CLOEXEC);
    if (lock >= 0)
        flock(lock, LOCK_EX);
}

void world_close(struct world *w) {
    struct err err;
    if (w->link < 0)
        return;
    interrupted = 0;
    stop_daemon(w);
    end_boxes(w);
    if (world_empty(w, &err) < 0 || spawn_stop(w->link, &err) < 0)
        fprintf(stderr, "box_bench: %s\n", err.text);
    else
        await_end(w);
    close(w->link);
    w->link = -1;
    remove_tree(w->place.run);
    remove_tree(w->place.home);
}

int box_open(struct box *b, int link, const struct box_spec *spec, struct err *err) {
    struct plan_message m = {.type = PLAN_CREATE};
    struct plan *p = &m.plan;
    struct id id = id_new('m');
    int grant DEFER_CLOSE = -1, guest, uppers[PLAN_MAX_GRANTS];
    if (go_on(err) < 0)
        return -1;
    memcpy(p->id, id.text, sizeof(p->id));
    memcpy(b->id, id.text, sizeof(b->id));
    snprintf(p->image, sizeof(p->image), "host");
    p->mem_bytes = 2ull << 30;
    p->cpu_milli = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN) * 1000;
    p->pids = 512;
    p->disk_bytes = spec->disk_bytes;
    p->linger = spec->linger;
    if (spec->grant) {
        grant = open(spec->grant, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (grant < 0)
            return err_sys(err, "open '%s'", spec->grant);
        p->grants[p->grant_count++] = (struct plan_grant){.mode = PLAN_GRANT_RO, .path = "/bench"};
    }
    if (spawn_create(link, &m, &grant, &guest, uppers, err) < 0)
        return -1;
    b->guest = guest_link_adopt(guest);
    return 0;
}

void box_drop(struct box *b) {
    guest_link_free(b->guest);
    b->guest = NULL;
}

int box_destroy(struct box *b, int link, struct err *err) {
    struct err why;
    box_drop(b);
    if (spawn_destroy(link, b->id, &why) == 0 || why.code == ERR_NOT_FOUND)
        return 0;
    *err = why;
    return -1;
}

static const char *const environment[] = {"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/user",
                                          "TMPDIR=/tmp", NULL};

/* Sends the command off with its output in a pipe; the reading end is the caller's. */
static int start(struct box *b, uint32_t id, const char *const *argv, int *ret_pipe,
                 struct err *err) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, "pipe");
    struct msg_exec exec = {
        .flags = MSG_EXEC_QUIET,
        .stdio = {MSG_STDIO_NULL, MSG_STDIO_FD, MSG_STDIO_NULL},
        .uid = USER,
        .gid = USER,
        .cwd = {"/tmp", 4},
        .argv = {.v = argv},
        .env = {.v = environment},
    };
    struct frame_head head = {.type = MSG_EXEC, .id = id, .tag = 1};
    int r = guest_link_send(b->guest, &head, &exec, &ends[1], 1, err);
    close(ends[1]);
    *ret_pipe = ends[0];
    if (r < 0)
        close(ends[0]);
    return r;
}

static int await_exit(struct box *b, uint32_t id, struct guest_result *ret, struct err *err) {
    struct frame f;
    while (guest_link_wait(b->guest, -1, &f, err) == 1) {
        if (f.head.type == MSG_ERROR)
            return guest_link_error(&f, err);
        if (f.head.id != id || (f.head.type != MSG_EXIT && f.head.type != MSG_EXEC_FAILED))
            continue;
        *ret = (struct guest_result){.never_began = f.head.type == MSG_EXEC_FAILED};
        if (ret->never_began || msg_get_exit(&f, &ret->exit) < 0)
            return err_set(err, ERR_INTERNAL, "the command never began");
        return guest_link_ack(b->guest, id, err);
    }
    return -1;
}

static int check_status(const char *const *argv, const struct guest_result *r, struct err *err) {
    int status = guest_result_status(r);
    return status ? err_set(err, ERR_INTERNAL, "'%s' ended with %d in a box", argv[0], status) : 0;
}

int box_exec(struct box *b, uint32_t id, const char *const *argv, uint64_t start_ns,
             struct moments *ret, struct err *err) {
    int output DEFER_CLOSE = -1;
    struct guest_result result;
    char bytes[4096];
    if (start(b, id, argv, &output, err) < 0)
        return -1;
    ssize_t n = read(output, bytes, sizeof(bytes));
    ret->first_ns = now_ns() - start_ns;
    while (n > 0)
        n = read(output, bytes, sizeof(bytes));
    if (await_exit(b, id, &result, err) < 0)
        return -1;
    ret->end_ns = now_ns() - start_ns;
    return check_status(argv, &result, err);
}

int box_read(struct box *b, uint32_t id, const char *const *argv, char *out, size_t size,
             struct guest_result *ret, struct err *err) {
    int output DEFER_CLOSE = -1;
    size_t have = 0;
    if (start(b, id, argv, &output, err) < 0)
        return -1;
    for (ssize_t n; have < size - 1 && (n = read(output, out + have, size - 1 - have)) > 0;)
        have += (size_t)n;
    out[have] = '\0';
    if (await_exit(b, id, ret, err) < 0)
        return -1;
    return check_status(argv, ret, err);
}
