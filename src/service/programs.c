#include "service/programs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "service/state.h"

enum { ANSWER_MAX = 1 << 20, LOG_MAX = 64 << 10, ARGV_MAX = 32 + PROGRAM_WORDS_MAX };

/* One end of a pipe of ours, and what goes through it. */
struct stream {
    struct program *program;
    int fd;
    struct loop_watch *watch;
    struct buf bytes;
    size_t at; /* of the input: sent so far */
};

struct program {
    struct service *service;
    struct caller who;
    uint64_t intent;
    pid_t pid;
    int pidfd;
    struct loop_watch *ended;
    struct loop_timer *limit;
    struct stream in, out, log;
    bool late;
    service_program_fn *done;
    void *arg;
};

static void path_of(const struct service *s, char ret[PLACE_SIZE + 16]) {
    snprintf(ret, PLACE_SIZE + 16, "%s/carrel-cell", s->place->libexec);
}

bool service_has_programs(const struct service *s) {
    char path[PLACE_SIZE + 16];
    path_of(s, path);
    return access(path, X_OK) == 0;
}

/* ---- its streams ---- */

static void stream_close(struct stream *t) {
    loop_watch_free(TAKE(t->watch));
    close_fd(&t->fd);
}

/* What does not fit is thrown away: the engine caps its output itself. */
static void take_output(struct stream *t) {
    char piece[16384];
    ssize_t n;
    while ((n = read(t->fd, piece, sizeof(piece))) > 0)
        (void)!buf_add(&t->bytes, piece, (size_t)n);
    if (n == 0 || (errno != EAGAIN && errno != EINTR))
        stream_close(t);
}

static void output_ready(void *arg, unsigned events) {
    (void)events;
    take_output(arg);
}

static void input_ready(void *arg, unsigned events) {
    struct stream *t = arg;
    (void)events;
    while (t->at < t->bytes.len) {
        ssize_t n = write(t->fd, t->bytes.data + t->at, t->bytes.len - t->at);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0)
            break; /* it does not want the rest */
        t->at += (size_t)n;
    }
    stream_close(t);
}

static void program_free(struct program *p) {
    stream_close(&p->in);
    stream_close(&p->out);
    stream_close(&p->log);
    buf_done(&p->in.bytes);
    buf_done(&p->out.bytes);
    buf_done(&p->log.bytes);
    loop_watch_free(p->ended);
    loop_timer_free(p->limit);
    close_fd(&p->pidfd);
    free(p);
}

/* ---- its end ---- */

static void note_end(struct program *p, int status) {
    struct journal_record what = {.verb = "program.run",
                                  .has_exit = status >= 0,
                                  .exit = status,
                                  .bytes = p->out.bytes.len,
                                  .reason = p->late ? "timeout" : NULL};
    note_result(p->service, &p->who, &what, p->intent, NULL);
}

static void finish(struct program *p, int wait_status) {
    struct err err;
    bool whole = WIFEXITED(wait_status) && p->out.bytes.len;
    int status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1;
    service_program_fn *done = p->done;
    void *arg = p->arg;
    if (p->late)
        err_set(&err, ERR_TIMEOUT, "the program took more than %d s", PROGRAM_MS / 1000);
    else if (!whole)
        err_set(&err, ERR_UNKNOWN, "the engine ended without an answer");
    note_end(p, status);
    p->service->programs--;
    const struct program_result result = {status, p->out.bytes.data,
                                          p->log.bytes.data ? p->log.bytes.data : ""};
    done(arg, whole && !p->late ? &result : NULL, whole && !p->late ? NULL : &err);
    program_free(p);
}

static void has_ended(void *arg, unsigned events) {
    struct program *p = arg;
    int status;
    (void)events;
    if (waitpid(p->pid, &status, WNOHANG) != p->pid)
        return;
    if (p->out.fd >= 0)
        take_output(&p->out);
    if (p->log.fd >= 0)
        take_output(&p->log);
    finish(p, status);
}

void program_kill(struct program *p) {
    kill(-p->pid, SIGKILL); /* it is not reaped before has_ended(), so the number is its own */
}

static void too_late(void *arg) {
    struct program *p = arg;
    p->late = true;
    program_kill(p);
}

/* ---- its start ---- */

struct words {
    const char *v[ARGV_MAX];
    size_t n;
    char fuel[24], memory[24];
};

static void add(struct words *w, const char *word) {
    w->v[w->n++] = word;
}

static void make_words(const struct program_request *r, struct words *w) {
    static const char *const grants[] = {"args_size", "args_read", "result", "log"};
    *w = (struct words){.n = 0};
    snprintf(w->fuel, sizeof(w->fuel), "%" PRIu64,
             r->fuel.is ? r->fuel.value : PROGRAM_FUEL_DEFAULT);
    snprintf(w->memory, sizeof(w->memory), "%" PRIu64, r->memory.is ? r->memory.value : 256);
    const char *const fixed[] = {"carrel-cell", "run",   "-",        "--json",
                                 "--fuel",      w->fuel, "--memory", w->memory};
    for (size_t i = 0; i < sizeof(fixed) / sizeof(*fixed); i++)
        add(w, fixed[i]);
    for (size_t i = 0; i < sizeof(grants) / sizeof(*grants); i++) {
        add(w, "--grant");
        add(w, grants[i]);
    }
    if (r->input) {
        add(w, "--args");
        add(w, r->input);
    }
    if (r->invoke) {
        add(w, "--invoke");
        add(w, r->invoke);
        for (size_t i = 0; i < r->args.count && i < PROGRAM_WORDS_MAX; i++)
            add(w, r->args.v[i]);
    }
}

static int check(const struct program_request *r, struct err *err) {
    if (strlen(r->text) > PROGRAM_TEXT_MAX)
        return err_set(err, ERR_LIMIT, "the program is longer than 1 MiB");
    if (r->args.count > PROGRAM_WORDS_MAX)
        return err_set(err, ERR_LIMIT, "more than %d arguments", PROGRAM_WORDS_MAX);
    if (r->args.count && !r->invoke)
        return err_set(err, ERR_INVALID, "arguments need the function that takes them: 'invoke'");
    return 0;
}

/* Our ends: ours[0] writes its input, ours[1] and ours[2] read what it says. */
static int spawn_with(const char *path, const struct words *w, int ours[3], pid_t *ret) {
    int theirs[3] = {-1, -1, -1}, r = 0;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    for (int i = 0; i < 3 && r == 0; i++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) < 0)
            r = errno;
        else {
            theirs[i] = ends[i == 0 ? 0 : 1];
            ours[i] = ends[i == 0 ? 1 : 0];
        }
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_setsigdefault(&attr, &all);
    for (int i = 0; i < 3; i++)
        posix_spawn_file_actions_adddup2(&actions, theirs[i], i);
    static char *const no_env[] = {NULL};
    if (r == 0)
        r = posix_spawn(ret, path, &actions, &attr, (char *const *)w->v, no_env);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    for (int i = 0; i < 3; i++)
        close_fd(&theirs[i]);
    return -r;
}

static int watch(struct program *p, struct stream *t, int fd, unsigned events, loop_watch_fn *fn,
                 struct err *err) {
    t->program = p;
    t->fd = fd;
    return loop_watch_new(p->service->loop, fd, events, fn, t, &t->watch, err);
}

static int listen_to(struct program *p, int ours[3], struct err *err) {
    struct loop *loop = p->service->loop;
    p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
    if (p->pidfd < 0)
        return err_sys(err, "watch the engine");
    fcntl(p->pidfd, F_SETFD, FD_CLOEXEC);
    if (watch(p, &p->in, TAKE_FD(ours[0]), LOOP_WRITE, input_ready, err) < 0 ||
        watch(p, &p->out, TAKE_FD(ours[1]), LOOP_READ, output_ready, err) < 0 ||
        watch(p, &p->log, TAKE_FD(ours[2]), LOOP_READ, output_ready, err) < 0 ||
        loop_watch_new(loop, p->pidfd, LOOP_READ, has_ended, p, &p->ended, err) < 0)
        return -1;
    p->limit = loop_timer_new(loop, too_late, p);
    loop_timer_start(p->limit, PROGRAM_MS, 0);
    return 0;
}

static int launch_it(struct program *p, const struct program_request *r, struct err *err) {
    char path[PLACE_SIZE + 16];
    int ours[3] = {-1, -1, -1};
    struct words words;
    path_of(p->service, path);
    make_words(r, &words);
    int failed = spawn_with(path, &words, ours, &p->pid);
    int n = failed < 0 ? err_num(err, failed, "run '%s'", path) : listen_to(p, ours, err);
    for (int i = 0; i < 3; i++)
        close_fd(&ours[i]);
    if (n < 0 && p->pid > 0) {
        program_kill(p);
        waitpid(p->pid, NULL, 0); /* it was just killed: at once */
    }
    return n;
}

struct program *service_program(struct service *s, const struct caller *who,
                                const struct program_request *r, service_program_fn *done,
                                void *arg, struct err *err) {
    struct journal_record what = {.verb = "program.run", .bytes = strlen(r->text)};
    if (allow(who, SCOPE_RUN, err) < 0 || check(r, err) < 0)
        return NULL;
    if (s->programs >= PROGRAM_AT_ONCE) {
        err_set(err, ERR_BUSY, "%d programs run already", PROGRAM_AT_ONCE);
        err_remedy(err, "try again when one has ended");
        return NULL;
    }
    struct program *p = calloc(1, sizeof(*p));
    if (!p)
        abort();
    *p = (struct program){.service = s, .who = *who, .pidfd = -1, .done = done, .arg = arg};
    p->in.fd = p->out.fd = p->log.fd = -1;
    p->in.bytes = BUF(PROGRAM_TEXT_MAX + 1);
    p->out.bytes = BUF(ANSWER_MAX);
    p->log.bytes = BUF(LOG_MAX);
    if (note_intent(s, who, &what, &p->intent, err) < 0 ||
        (buf_add(&p->in.bytes, r->text, strlen(r->text)) ? 0 : -1) < 0 ||
        launch_it(p, r, err) < 0) {
        program_free(p);
        return NULL;
    }
    s->programs++;
    return p;
}
