#include "machine/dump.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cell_dump.h"
#include "base/defer.h"
#include "io/place.h"

enum { DUMP_MS = 30000, ABOVE_FDS = 10 };

/* Opens a file of the image; a link does not lead out of it, and a pipe does not block. */
static int open_in(int root, const char *program, const char *ending, struct err *err) {
    char path[128];
    const struct open_how how = {
        .flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
    };
    snprintf(path, sizeof(path), "bin/%s.%s", program, ending);
    int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
    return fd < 0 ? err_sys(err, "cannot open '%s' of the image", path) : fd;
}

static int dump_start(const char *libexec, const char *program, const int fds[3], pid_t *ret,
                      struct err *err) {
    char path[PLACE_SIZE + 32];
    char own[16];
    char *const words[] = {(char *)CELL_DUMP_NAME, (char *)program, own, NULL};
    char *const no_env[] = {NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    snprintf(path, sizeof(path), "%s/carrel-cell", libexec);
    snprintf(own, sizeof(own), "%d", getpid());
    posix_spawn_file_actions_init(&actions);
    for (int i = 0; i < 3; i++)
        posix_spawn_file_actions_addopen(&actions, i, "/dev/null", O_RDWR, 0);
    for (int i = 0; i < 3; i++)
        posix_spawn_file_actions_adddup2(&actions, fds[i], DUMP_PROGRAM_FD + i);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setsigmask(&attr, &none);
    int r = posix_spawn(ret, path, &actions, &attr, words, no_env);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    return r ? err_num(err, -r, "cannot run '%s'", path) : 0;
}

static int dump_wait(pid_t pid, int stop, struct err *err) {
    int status, fd DEFER_CLOSE = pidfd_open(pid, 0);
    struct pollfd p[] = {{.fd = fd, .events = POLLIN}, {.fd = stop, .events = POLLIN}};
    int r;
    do
        r = fd < 0 ? 0 : poll(p, 2, DUMP_MS);
    while (r < 0 && errno == EINTR);
    if (!p[0].revents)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status == 0 ? 0
                       : err_set(err, ERR_INVALID, "carrel-cell cannot make a dump of the program");
}

/* Moves a descriptor out of the way of the numbers that the worker expects. */
static int above(int fd) {
    return fcntl(fd, F_DUPFD_CLOEXEC, ABOVE_FDS);
}

static int dump_into(const char *libexec, int root, const char *program, int out, int stop,
                     struct err *err) {
    pid_t pid;
    int module DEFER_CLOSE = open_in(root, program, "wasm", err);
    int image DEFER_CLOSE = module < 0 ? -1 : open_in(root, program, "warm", err);
    if (image < 0)
        return -1;
    int a DEFER_CLOSE = above(module), b DEFER_CLOSE = above(image), c DEFER_CLOSE = above(out);
    if (a < 0 || b < 0 || c < 0)
        return err_sys(err, "cannot duplicate descriptors for carrel-cell");
    return dump_start(libexec, program, (const int[]){a, b, c}, &pid, err) < 0
               ? -1
               : dump_wait(pid, stop, err);
}

int dump_run(const char *libexec, int root, const char *program, int dir, const char *name,
             int stop, struct err *err) {
    static const char part[] = "part";
    unlinkat(dir, part, 0);
    int out DEFER_CLOSE = openat(dir, part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (out < 0)
        return err_sys(err, "cannot create a file for a dump");
    int r = dump_into(libexec, root, program, out, stop, err);
    /* A worker trusts the file, so all of it is on disk before it gets its name. */
    if (r == 0 && (fsync(out) < 0 || renameat(dir, part, dir, name) < 0))
        r = err_sys(err, "cannot keep a dump");
    if (r < 0)
        unlinkat(dir, part, 0);
    return r;
}
