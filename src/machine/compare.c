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

#include "base/alloc.h"
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

/* Starts carrel-compare and sends the order. *ret_socket receives the answer. */
static int compare_ask(const char *libexec, int type, const struct compare_order *o, const int *fds,
                       size_t count, int userns, int *ret_socket, pid_t *ret_pid, struct err *err) {
    int ends[2], all[COMPARE_FDS_MAX + 1];
    if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) < 0)
        return err_sys(err, "cannot create a socket pair for carrel-compare");
    int ours DEFER_CLOSE = ends[0], theirs DEFER_CLOSE = ends[1];
    int room = 2 * (int)sizeof(*o);
    setsockopt(ours, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    if (compare_start(libexec, theirs, ret_pid, err) < 0)
        return -1;
    memcpy(all, fds, count * sizeof(*fds));
    all[count] = userns;
    int r = send_fds(ours, o, sizeof(*o), all, count + (userns >= 0));
    if (r < 0) {
        kill(*ret_pid, SIGKILL);
        compare_wait_for(*ret_pid);
        return err_num(err, r, "cannot send the request to carrel-compare");
    }
    *ret_socket = TAKE_FD(ours);
    return 0;
}

int compare_run(const char *libexec, const struct compare_order *o, const int *fds, size_t count,
                int userns, struct buf *out, struct err *err) {
    pid_t pid;
    int ours DEFER_CLOSE = -1;
    if (compare_ask(libexec, SOCK_STREAM, o, fds, count, userns, &ours, &pid, err) < 0)
        return -1;
    bool whole = compare_hear(ours, out);
    if (!whole)
        kill(pid, SIGKILL);
    int status = compare_wait_for(pid);
    if (whole && status == 0)
        return 0;
    return err_set(err, ERR_INTERNAL, "carrel-compare %s",
                   !whole ? "exceeded its time or output limit" : "ended without a result");
}

/* ---- packing ---- */

static int pack_failed(const char *bytes, size_t n, struct err *err) {
    static const struct {
        char cause;
        enum err_code code;
    } codes[] = {{PACK_LIMIT, ERR_LIMIT}, {PACK_CHANGED, ERR_BUSY}, {PACK_UNREADABLE, ERR_INVALID}};
    enum err_code code = ERR_INTERNAL;
    for (size_t i = 0; n && i < sizeof(codes) / sizeof(*codes); i++)
        if (codes[i].cause == bytes[0])
            code = codes[i].code;
    err_set(err, code, "%.*s", n > 1 ? (int)(n - 1) : 0, bytes + 1);
    return code == ERR_BUSY ? err_remedy(err, "try again, or pause the machine: carrel pause") : -1;
}

/* Takes one message. Returns 1 after the last one, 0 if more follow, or -1. */
static int pack_take(const char *bytes, size_t n, const struct compare_sink *sink,
                     struct err *err) {
    switch (bytes[0]) {
    case COMPARE_ARCHIVE:
        return sink->archive(sink->arg, bytes + 1, n - 1, err);
    case COMPARE_LIST:
        return sink->list(sink->arg, bytes + 1, n - 1, err);
    case COMPARE_END:
        return 1;
    case COMPARE_FAILED:
        return pack_failed(bytes + 1, n - 1, err);
    default:
        return err_set(err, ERR_INTERNAL, "carrel-compare sent an unknown message");
    }
}

static int pack_hear(int socket, const struct compare_sink *sink, struct err *err) {
    char *bytes DEFER_FREE = malloc(COMPARE_MESSAGE_MAX);
    uint64_t until = monotonic_ms() + COMPARE_PACK_MS + LATE_MS - COMPARE_MS, now;
    int status = 0;
    while (bytes && status == 0 && (now = monotonic_ms()) < until) {
        struct pollfd p = {.fd = socket, .events = POLLIN};
        if (poll(&p, 1, (int)(until - now)) <= 0)
            continue;
        ssize_t n = read(socket, bytes, COMPARE_MESSAGE_MAX);
        if (n <= 0)
            return err_set(err, ERR_INTERNAL, "carrel-compare ended without a result");
        status = pack_take(bytes, (size_t)n, sink, err);
    }
    return status ? status : err_set(err, ERR_TIMEOUT, "packing the changes took too long");
}

int compare_pack_run(const char *libexec, int upper, int disk, int userns,
                     const struct compare_sink *sink, struct err *err) {
    struct compare_order *o DEFER_FREE = xnew(struct compare_order);
    const int fds[PACK_FDS] = {[PACK_UPPER] = upper, [PACK_DISK] = disk};
    int socket DEFER_CLOSE = -1;
    pid_t pid;
    o->task = COMPARE_PACK;
    if (compare_ask(libexec, SOCK_SEQPACKET, o, fds, PACK_FDS, userns, &socket, &pid, err) < 0)
        return -1;
    int status = pack_hear(socket, sink, err);
    if (status < 0)
        kill(pid, SIGKILL);
    compare_wait_for(pid);
    return status < 0 ? -1 : 0;
}
