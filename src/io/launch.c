#include "io/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"

enum { START_MS = 60000, SOON_MS = 700, ARGS_MAX = 32 };

/* The program gets its end of the pipe as this descriptor. */
enum { READY_FD = 3 };

struct launching {
    const struct place *place;
    const char *program, *log;
    const char *const *args;
    int ready;
};

/* Runs in the child: detaches from the caller and executes the program. */
static void become(const struct launching *l) {
    char path[PLACE_SIZE + 32], log[PLACE_SIZE + 32], fd[16];
    const char *words[ARGS_MAX] = {l->program,   "--run", l->place->run, "--home", l->place->home,
                                   "--ready-fd", fd};
    /* Must be above the standard streams, which the caller may have closed. */
    int ready = fcntl(l->ready, F_DUPFD_CLOEXEC, READY_FD);
    snprintf(path, sizeof(path), "%s/%s", l->place->libexec, l->program);
    snprintf(log, sizeof(log), "%s/%s", l->place->run, l->log);
    snprintf(fd, sizeof(fd), "%d", READY_FD);
    for (size_t n = 7, i = 0; l->args && l->args[i] && n < ARGS_MAX - 1; i++)
        words[n++] = l->args[i];
    sigset_t none;
    sigemptyset(&none); /* the caller may block some signals */
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    if (chdir("/") < 0)
        _exit(127);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(out < 0 ? null : out, STDERR_FILENO);
    /* Other open descriptors of the caller would stay open as long as the program runs. */
    close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
    if (ready != READY_FD && dup2(ready, READY_FD) < 0)
        _exit(127);
    fcntl(READY_FD, F_SETFD, 0);
    execv(path, (char *const *)words);
    _exit(127);
}

/*
 * Waits for the started program. It writes 'r' when it is ready, 'E' and a reason if it failed, or
 * 'B' and the name of the program that already runs. End of file without a byte: it died.
 */
static int await(int ready, const char *program, void (**waiting)(void), struct err *err) {
    char text[600] = "";
    size_t n = 0;
    for (int left = START_MS; n < sizeof(text) - 1;) {
        struct pollfd p = {.fd = ready, .events = POLLIN};
        int slice = *waiting ? SOON_MS : left;
        int r = poll(&p, 1, slice);
        if (r == 0) {
            if (*waiting)
                (*waiting)();
            *waiting = NULL;
            if ((left -= slice) <= 0)
                return err_set(err, ERR_TIMEOUT, "%s did not start in time", program);
            continue;
        }
        ssize_t got = read(ready, text + n, sizeof(text) - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
        if (text[0] == 'r')
            return 0;
    }
    if (text[0] != 'E' && text[0] != 'B')
        return err_set(err, ERR_INTERNAL, "%s ended before it was ready", program);
    char *remedy = strchr(text, '\n');
    if (remedy)
        *remedy++ = '\0';
    err_set(err, text[0] == 'B' ? ERR_BUSY : ERR_UNSUPPORTED, "%s", text + 1);
    return err_remedy(err, "%s", remedy ? remedy : "");
}

int launch(const struct place *place, const char *program, const char *log, const char *const *args,
           void (**waiting)(void), struct err *err) {
    int ready[2];
    if (place_make(place, err) < 0)
        return -1;
    if (pipe2(ready, O_CLOEXEC) < 0)
        return err_sys(err, "cannot create a pipe");
    pid_t pid = fork();
    if (pid == 0) {
        /* Forks twice, so that the program is not our child and leaves no zombie. */
        const struct launching l = {place, program, log, args, ready[1]};
        if (fork() == 0)
            become(&l);
        _exit(0);
    }
    close(ready[1]);
    int end DEFER_CLOSE = ready[0];
    if (pid < 0)
        return err_sys(err, "cannot create a process");
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    void (*nobody)(void) = NULL;
    return await(end, program, waiting ? waiting : &nobody, err);
}

void launch_report(int *ready_fd, const struct err *err) {
    char text[600];
    if (*ready_fd < 0)
        return;
    char letter = !err ? 'r' : err->code == ERR_BUSY ? 'B' : 'E';
    size_t n = (size_t)snprintf(text, sizeof(text), "%c%s%s%s", letter, err ? err->text : "",
                                err && err->remedy[0] ? "\n" : "", err ? err->remedy : "");
    write_all(*ready_fd, text, n < sizeof(text) ? n : sizeof(text) - 1);
    close_fd(ready_fd);
}
