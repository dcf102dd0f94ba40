#include "cell/jail_root.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/defer.h"
#include "base/fdio.h"

/* The id of every worker in its own user namespace. */
enum { WORKER_ID = 1000, HELPER_FD = 3 };

/* The spawner is beside this program. */
static int spawner_path(const struct jail *j, char path[PATH_MAX], struct err *err) {
    if (j->spawner && strlen(j->spawner) < PATH_MAX)
        return snprintf(path, PATH_MAX, "%s", j->spawner), 0;
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (n < 0)
        return err_sys(err, "cannot find the directory of this program");
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    size_t room = PATH_MAX - (size_t)(slash + 1 - path);
    if ((size_t)snprintf(slash + 1, room, "carrel-spawn") >= room)
        return err_set(err, ERR_INTERNAL, "the path of this program is too long");
    return 0;
}

static void __attribute__((noreturn))
run_spawner(const struct jail *j, const char *path, int socket) {
    const char *args[JAIL_DIRS_MAX + 4] = {"carrel-spawn", "--cell-root", "3"};
    for (size_t i = 0; i < j->n_dirs; i++) {
        size_t size = strlen(j->dirs[i].path) + 4;
        char *word = malloc(size);
        if (!word)
            _exit(1);
        snprintf(word, size, "%s:%s", j->dirs[i].is_read_only ? "ro" : "rw", j->dirs[i].path);
        args[3 + i] = word;
    }
    /* dup2() of the same number would keep the flag that closes it. */
    if (socket == HELPER_FD ? fcntl(socket, F_SETFD, 0) < 0 : dup2(socket, HELPER_FD) < 0)
        _exit(1);
    execv(path, (char *const *)args);
    _exit(127);
}

/* The answer is "k" with two namespaces, or "e", the error and the remedy on a line of its own. */
static int take_answer(struct jail_root *r, struct err *err) {
    char text[600] = "";
    struct fd_message in DEFER(fd_message_close) = {0};
    if (recv_fds(r->socket, text, sizeof(text) - 1, &in) < 0 || in.len == 0)
        return err_set(err, ERR_INTERNAL, "the spawner did not make the worker's root directory");
    text[in.len] = '\0';
    if (text[0] == 'k' && in.nfds == 2) {
        r->userns = TAKE_FD(in.fds[0]);
        r->mntns = TAKE_FD(in.fds[1]);
        return 0;
    }
    char *remedy = strchr(text, '\n');
    if (remedy)
        *remedy++ = '\0';
    err_set(err, ERR_UNSUPPORTED, "%.280s", text[0] ? text + 1 : text);
    return remedy && *remedy ? err_remedy(err, "%.150s", remedy) : -1;
}

int jail_root_open(const struct jail *j, struct jail_root *ret, struct err *err) {
    char path[PATH_MAX];
    int ends[2];
    *ret = JAIL_ROOT_NONE;
    if (spawner_path(j, path, err) < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return err_sys(err, "cannot create a socket pair for the spawner");
    ret->socket = ends[0];
    int theirs DEFER_CLOSE = ends[1];
    ret->spawner = fork();
    if (ret->spawner == 0)
        run_spawner(j, path, theirs);
    close_fd(&theirs);
    if (ret->spawner < 0)
        err_sys(err, "cannot start the spawner");
    else if (take_answer(ret, err) == 0)
        return 0;
    jail_root_close(ret);
    return -1;
}

void jail_root_close(struct jail_root *r) {
    close_fd(&r->socket);
    close_fd(&r->userns);
    close_fd(&r->mntns);
    while (r->spawner > 0 && waitpid(r->spawner, NULL, 0) < 0 && errno == EINTR)
        ;
    r->spawner = 0;
}

/* The rights of the user namespace are dropped as well: the worker mounts nothing. */
static int drop_rights(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0}};
    /* Without root the kernel forbids setgroups(); the groups are then those of the user. */
    if (syscall(SYS_setgroups, 0, NULL) < 0 && errno != EPERM)
        return -1;
    if (syscall(SYS_setresgid, WORKER_ID, WORKER_ID, WORKER_ID) < 0 ||
        syscall(SYS_setresuid, WORKER_ID, WORKER_ID, WORKER_ID) < 0)
        return -1;
    return (int)syscall(SYS_capset, &header, none);
}

int jail_root_enter(const struct jail_root *r) {
    if (setns(r->userns, CLONE_NEWUSER) < 0 || setns(r->mntns, CLONE_NEWNS) < 0)
        return -1;
    return drop_rights();
}
