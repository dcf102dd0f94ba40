#include "io/criu.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/defer.h"

enum { CHECK_MS = 5000, OUT_MAX = 16384, SAID_MAX = 180 };

static const char *find_criu(void) {
    static const char *const places[] = {"/usr/sbin/criu", "/usr/bin/criu", "/usr/local/sbin/criu",
                                         "/sbin/criu"};
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
        if (access(places[i], X_OK) == 0)
            return places[i];
    return NULL;
}

static int criu_start(const char *path, int out, pid_t *ret) {
    char *const argv[] = {(char *)"criu", (char *)"check", NULL};
    char *const env[] = {(char *)"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, out, STDERR_FILENO);
    int r = posix_spawn(ret, path, &files, NULL, argv, env);
    posix_spawn_file_actions_destroy(&files);
    return -r;
}

/* Collects the output of criu until it ends or CHECK_MS have passed. */
static void listen_to(int in, struct buf *ret) {
    char piece[4096];
    for (int64_t end = (int64_t)monotonic_ms() + CHECK_MS, left;
         (left = end - (int64_t)monotonic_ms()) > 0;) {
        if (poll(&(struct pollfd){.fd = in, .events = POLLIN}, 1, (int)left) <= 0)
            continue;
        ssize_t n = read(in, piece, sizeof(piece));
        if (n <= 0 || !buf_add(ret, piece, (size_t)n))
            return;
    }
}

/*
 * Joins the errors in the output, such as "Error (criu/vdso.c:381): vdso: ...", without the place
 * in the source of criu.
 */
static void gather_errors(char *text, char ret[SAID_MAX]) {
    size_t at = 0;
    ret[0] = '\0';
    for (char *line; (line = strsep(&text, "\n"));) {
        char *said = strncmp(line, "Error (", 7) == 0 ? strstr(line, "): ") : NULL;
        if (said && strncmp(said + 3, "exited, ", 8) != 0 && at < SAID_MAX - 1)
            at += (size_t)snprintf(ret + at, SAID_MAX - at, "%s%s", at ? "; " : "", said + 3);
    }
}

/* Waits for criu, which closes its output just before it exits. Kills it if it does not exit. */
static void await_end(pid_t pid, int *ret_status) {
    enum { TRIES = 200 };
    int i = 0;
    while (i < TRIES && waitpid(pid, ret_status, WNOHANG) == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        i++;
    }
    if (i < TRIES)
        return;
    kill(pid, SIGKILL);
    while (waitpid(pid, ret_status, 0) < 0 && errno == EINTR)
        ;
}

static int run_check(const char *path, struct buf *said, int *ret_status) {
    int ends[2];
    pid_t pid;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    int in DEFER_CLOSE = ends[0], out DEFER_CLOSE = ends[1];
    int r = criu_start(path, out, &pid);
    if (r < 0)
        return r;
    close_fd(&out);
    listen_to(in, said);
    await_end(pid, ret_status);
    return 0;
}

int criu_check(struct err *err) {
    struct buf said DEFER(buf_done) = BUF(OUT_MAX);
    const char *path = find_criu();
    char errors[SAID_MAX];
    int status = 0;
    if (!path)
        return err_set(err, ERR_UNSUPPORTED, "CRIU is not installed");
    int r = run_check(path, &said, &status);
    if (r < 0)
        return err_num(err, r, "cannot run %s", path);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    gather_errors(said.len ? said.data : (char[]){""}, errors);
    return err_set(err, ERR_UNSUPPORTED, "CRIU does not work on this host: %s",
                   errors[0] ? errors : "`criu check` failed without an error message");
}
