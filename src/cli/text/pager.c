#include "cli/text/pager.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/text/colour.h"

static pid_t pager;

static const char *pager_command(void) {
    const char *own = getenv("CARREL_PAGER"), *common = getenv("PAGER"), *term = getenv("TERM");
    const char *command = own ? own : common;
    if (!isatty(STDOUT_FILENO) || !term || strcmp(term, "dumb") == 0)
        return NULL;
    if (!command)
        return "command -v less >/dev/null 2>&1 && exec less; exec cat";
    return *command && strcmp(command, "cat") != 0 ? command : NULL;
}

/* Waits until the user leaves the pager, before the shell uses the terminal again. Ignores ^C,
 * which the pager handles. */
static void pager_wait(void) {
    int none = open("/dev/null", O_WRONLY | O_CLOEXEC);
    fflush(stdout);
    signal(SIGINT, SIG_IGN);
    if (none < 0 || dup2(none, STDOUT_FILENO) < 0)
        close(STDOUT_FILENO);
    while (waitpid(pager, NULL, 0) < 0 && errno == EINTR)
        ;
}

static void pager_run(const int pipe_fds[2], const char *command) {
    dup2(pipe_fds[0], STDIN_FILENO);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    setenv("LESS", "FRX", 0);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

void pager_start(void) {
    const char *command = pager_command();
    int fds[2];
    if (!command || pager)
        return;
    colour_is_on(); /* decides while standard output is still the terminal */
    fflush(stdout);
    if (pipe2(fds, O_CLOEXEC) < 0)
        return;
    pager = fork();
    if (pager == 0)
        pager_run(fds, command);
    if (pager > 0) {
        dup2(fds[1], STDOUT_FILENO);
        atexit(pager_wait);
    } else {
        pager = 0;
    }
    close(fds[0]);
    close(fds[1]);
}
