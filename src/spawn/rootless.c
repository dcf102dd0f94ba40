#include "spawn/rootless.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"

/* Finds the first range of at least 65,536 ids for this user in /etc/subuid or /etc/subgid. */
static int sub_range(const char *file, uint32_t id, uint32_t *ret_first, struct err *err) {
    char text[65536], number[16], name[64] = "";
    /*
     * Reads the user's name from /etc/passwd itself: a static program must not load a name service.
     */
    if (read_file_at(AT_FDCWD, "/etc/passwd", text, sizeof(text)) > 0) {
        char needle[32];
        snprintf(needle, sizeof(needle), ":%" PRIu32 ":", id);
        for (char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
            char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;
            if (second && strncmp(second, needle, strlen(needle)) == 0)
                snprintf(name, sizeof(name), "%.*s", (int)(first - line), line);
        }
    }
    snprintf(number, sizeof(number), "%" PRIu32, id);
    if (read_file_at(AT_FDCWD, file, text, sizeof(text)) < 0)
        text[0] = '\0';
    for (char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        unsigned long first, count;
        size_t len = strcspn(line, ":");
        bool mine = (len == strlen(name) && strncmp(line, name, len) == 0) ||
                    (len == strlen(number) && strncmp(line, number, len) == 0);
        if (mine && line[len] == ':' && sscanf(line + len, ":%lu:%lu", &first, &count) == 2 &&
            count >= SLOT_IDS) {
            *ret_first = (uint32_t)first;
            return 0;
        }
    }
    err_set(err, ERR_UNSUPPORTED, "user '%s' needs %d subordinate ids in %s", name, SLOT_IDS, file);
    return err_remedy(
        err, "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 %s", name);
}

static int run_helper(const char *program, pid_t pid, uint32_t own, uint32_t first,
                      struct err *err) {
    char target[16], id[16], base[16];
    snprintf(target, sizeof(target), "%d", (int)pid);
    snprintf(id, sizeof(id), "%" PRIu32, own);
    snprintf(base, sizeof(base), "%" PRIu32, first);
    pid_t child = fork();
    if (child == 0) {
        execlp(program, program, target, "0", id, "1", "1", base, "65536", (char *)NULL);
        _exit(127);
    }
    int status = -1;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    err_set(err, ERR_UNSUPPORTED, "program %s, which maps user ids, failed (exit status %d)",
            program, status);
    return err_remedy(err, "sudo apt-get install uidmap");
}

/*
 * Runs in the child: waits until the parent has set the id maps, then becomes root of the user
 * namespace.
 */
static int become_root(int mapped) {
    char c;
    if (read(mapped, &c, 1) != 1)
        return -EPERM;
    if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0 || unshare(CLONE_NEWNET) < 0)
        return -errno;
    prctl(PR_SET_DUMPABLE, 1);
    return 0;
}

/*
 * Runs as the outsider, the process outside the user namespace. It keeps only one socket open, so
 * that no other resource stays in use because of it.
 */
static void __attribute__((noreturn)) stay_outside(int socket) {
    prctl(PR_SET_NAME, "carrel-outside");
    socket = dup2(socket, 3);
    close_range(4, ~0u, 0);
    for (;;) {
        char word;
        struct fd_message in = {0};
        if (recv_fds(socket, &word, 1, &in) < 0 || in.len == 0)
            _exit(0);
        for (size_t i = 0; i < in.nfds; i++)
            pidfd_send_signal(in.fds[i], SIGKILL, NULL, 0);
        fd_message_close(&in);
    }
}

int rootless_end(struct spawner *s, int pidfd) {
    return s->outsider < 0 ? -1 : send_fds(s->outsider, "k", 1, &pidfd, 1);
}

void rootless_dismiss(struct spawner *s) {
    close_fd(&s->outsider);
}

int rootless_enter(struct spawner *s, struct err *err) {
    uint32_t uids, gids, uid = geteuid(), gid = getegid();
    int ready[2], mapped[2], link[2];
    s->outsider = -1;
    if (uid == 0)
        return 0;
    if (sub_range("/etc/subuid", uid, &uids, err) < 0 ||
        sub_range("/etc/subgid", uid, &gids, err) < 0)
        return -1;
    if (pipe2(ready, O_CLOEXEC) < 0 || pipe2(mapped, O_CLOEXEC) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, link) < 0)
        return err_sys(err, "cannot create pipes to the spawner");
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(err, "cannot start the spawner");
    if (pid == 0) {
        close(mapped[1]);
        close(link[1]);
        s->outsider = link[0];
        bool ok = unshare(CLONE_NEWUSER) == 0;
        (void)!write(ready[1], ok ? "u" : "e", 1);
        int r = ok ? become_root(mapped[0]) : -EPERM;
        if (r < 0) {
            return err_num(err, r, "cannot become root of the spawner's user namespace");
        }
        s->rootless = true;
        s->maker.slots =
            (struct slots){.base = 1, .count = SLOT_MAX, .lock_dir = -1, .shared = true};
        return 0;
    }
    char c = 0;
    bool born = read(ready[0], &c, 1) == 1 && c == 'u';
    if (!born || run_helper("newuidmap", pid, uid, uids, err) < 0 ||
        run_helper("newgidmap", pid, gid, gids, err) < 0) {
        if (!born) {
            err_set(err, ERR_UNSUPPORTED,
                    "the kernel does not allow this user to create user namespaces");
            err_remedy(err, "sudo sysctl kernel.unprivileged_userns_clone=1");
        }
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return -1;
    }
    (void)!write(mapped[1], "m", 1);
    close(link[0]);
    stay_outside(link[1]); /* the child is now the spawner and holds all state */
}
