/* Starts carrel-compare, sends the request and reads the result. */
#include "machine/compare.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "io/place.h"

enum { LATE_MS = COMPARE_MS + 3000 };

static int compare_start(const char *libexec, int socket, pid_t *ret, struct err *err) {
    char path[PLACE_SIZE + 32];
    static char *const words[] = {(char *)"carrel-compare", NULL}, *const no_env[] = {NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    snprintf(path, sizeof(path), "%s/carrel-compare", libexec);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, socket, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setsigmask(&attr, &none);
    int r = posix_spawn(ret, path, &actions, &attr, words, no_env);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    return r ? err_num(err, -r, "cannot run '%s'", path) : 0;
}

/* Reads the whole result of carrel-compare. False: timeout or too much output. */
static bool compare_hear(int socket, struct buf *out) {
    static const size_t piece = 1 << 16;
    char *bytes DEFER_FREE = malloc(piece);
    uint64_t until = monotonic_ms() + LATE_MS, now;
    while (bytes && (now = monotonic_ms()) < until) {
        struct pollfd p = {.fd = socket, .events = POLLIN};
        if (poll(&p, 1, (int)(until - now)) <= 0)
            continue;
        ssize_t n = read(socket, bytes, piece);
        if (n <= 0)
            return n == 0;
        if (!buf_add(out, bytes, (size_t)n))
            return false;
    }
    return false;
}

static int compare_wait_for(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return status;
}

int compare_run(const char *libexec, const struct compare_order *o, const int *fds, size_t count,
                int userns, struct buf *out, struct err *err) {
    int ends[2], all[COMPARE_FDS + 1];
    pid_t pid;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return err_sys(err, "cannot create a socket pair for carrel-compare");
    int ours DEFER_CLOSE = ends[0], theirs DEFER_CLOSE = ends[1];
    int room = 2 * (int)sizeof(*o);
    setsockopt(ours, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    if (compare_start(libexec, theirs, &pid, err) < 0)
        return -1;
    close(TAKE_FD(theirs));
    memcpy(all, fds, count * sizeof(*fds));
    all[count] = userns;
    int r = send_fds(ours, o, sizeof(*o), all, count + (userns >= 0));
    bool whole = r == 0 && compare_hear(ours, out);
    if (!whole)
        kill(pid, SIGKILL);
    int status = compare_wait_for(pid);
    if (r < 0)
        return err_num(err, r, "cannot send the request to carrel-compare");
    if (whole && status == 0)
        return 0;
    return err_set(err, ERR_INTERNAL, "carrel-compare %s",
                   !whole ? "exceeded its time or output limit" : "ended without a result");
}
