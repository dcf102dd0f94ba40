#include "outside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "bench/stats.h"

pid_t outside_start(const char *const *argv, int *ret_pipe) {
    int ends[2] = {-1, -1};
    if (ret_pipe && pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        if (ret_pipe)
            dup2(ends[1], STDOUT_FILENO);
        else
            dup2(STDIN_FILENO, STDOUT_FILENO); /* /dev/null */
        dup2(STDIN_FILENO, STDERR_FILENO);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    if (ret_pipe) {
        close(ends[1]);
        *ret_pipe = ends[0];
    }
    return pid;
}

static int finish(pid_t pid, const char *name, struct rusage *usage, struct err *err) {
    int status;
    while (wait4(pid, &status, 0, usage) < 0)
        if (errno != EINTR)
            return err_sys(err, "wait for '%s'", name);
    if (status != 0)
        return err_set(err, ERR_INTERNAL, "'%s' ended with wait status %d", name, status);
    return 0;
}

int outside_exec(const char *const *argv, struct moments *ret, struct err *err) {
    char bytes[4096];
    int output DEFER_CLOSE = -1;
    uint64_t start = now_ns();
    pid_t pid = outside_start(argv, &output);
    if (pid < 0)
        return err_sys(err, "fork");
    ssize_t n = read(output, bytes, sizeof(bytes));
    ret->first_ns = now_ns() - start;
    while (n > 0)
        n = read(output, bytes, sizeof(bytes));
    if (finish(pid, argv[0], NULL, err) < 0)
        return -1;
    ret->end_ns = now_ns() - start;
    return 0;
}

int outside_read(const char *const *argv, char *out, size_t size, struct rusage *ret,
                 struct err *err) {
    int output DEFER_CLOSE = -1;
    size_t have = 0;
    pid_t pid = outside_start(argv, &output);
    if (pid < 0)
        return err_sys(err, "fork");
    for (ssize_t n; have < size - 1 && (n = read(output, out + have, size - 1 - have)) > 0;)
        have += (size_t)n;
    out[have] = '\0';
    return finish(pid, argv[0], ret, err);
}
