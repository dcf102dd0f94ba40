#include "cli/ship/git.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"

enum { WORDS_MAX = 48 };

/* Settings that keep a hostile repository from running programs or reading other files. */
static const char *const always[] = {
    "git",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.pager=cat",
    "-c",
    "gc.auto=0",
    "-c",
    "maintenance.auto=false",
    "-c",
    "protocol.allow=never",
    "-c",
    "protocol.file.allow=always",
    "-c",
    "fetch.fsckObjects=true",
    "-c",
    "transfer.fsckObjects=true",
    "-c",
    "submodule.recurse=false",
    "-c",
    "core.alternateRefsCommand=true",
};
enum { ALWAYS = sizeof(always) / sizeof(*always) };

static char **clean_env(char *path, size_t size) {
    static char *env[10];
    const char *from = getenv("PATH");
    snprintf(path, size, "PATH=%s", from ? from : "/usr/bin:/bin");
    char *const fixed[] = {path,
                           (char *)"GIT_CONFIG_NOSYSTEM=1",
                           (char *)"GIT_CONFIG_GLOBAL=/dev/null",
                           (char *)"GIT_TERMINAL_PROMPT=0",
                           (char *)"GIT_ATTR_NOSYSTEM=1",
                           (char *)"GIT_OPTIONAL_LOCKS=0",
                           (char *)"LC_ALL=C",
                           (char *)"HOME=/nonexistent",
                           NULL};
    memcpy(env, fixed, sizeof(fixed));
    return env;
}

static int git_start(const char *const *words, const int fds[3], pid_t *ret, struct err *err) {
    const char *argv[WORDS_MAX + ALWAYS + 1];
    char path[4096];
    size_t n = ALWAYS;
    posix_spawn_file_actions_t actions;
    memcpy(argv, always, sizeof(always));
    for (size_t i = 0; words[i]; i++) {
        if (i == WORDS_MAX)
            return err_set(err, ERR_INTERNAL, "too many arguments for git");
        argv[n++] = words[i];
    }
    argv[n] = NULL;
    posix_spawn_file_actions_init(&actions);
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            posix_spawn_file_actions_adddup2(&actions, fds[i], i);
        else
            posix_spawn_file_actions_addopen(&actions, i, "/dev/null", O_RDWR, 0);
    int r = posix_spawnp(ret, "git", &actions, NULL, (char *const *)argv,
                         clean_env(path, sizeof(path)));
    posix_spawn_file_actions_destroy(&actions);
    if (r == 0)
        return 0;
    err_num(err, -r, "cannot run git");
    return err_remedy(err, "install git: apt install git");
}

/* Reads the last line of git's standard error, which has the reason of a failure. */
static void last_line(int said, char *ret, size_t size) {
    ssize_t n = pread(said, ret, size - 1, 0);
    ret[n > 0 ? n : 0] = '\0';
    while (n > 0 && ret[n - 1] == '\n')
        ret[--n] = '\0';
    char *line = strrchr(ret, '\n');
    if (line)
        memmove(ret, line + 1, strlen(line));
}

int git_run(const char *const *words, int out, struct err *err) {
    return git_feed(words, -1, out, err);
}

int git_feed(const char *const *words, int in, int out, struct err *err) {
    char why[300];
    pid_t pid;
    int status, said DEFER_CLOSE = memfd_create("git", MFD_CLOEXEC);
    if (said < 0)
        return err_sys(err, "cannot create a temporary file for errors of git");
    const int fds[3] = {in, out, said};
    if (git_start(words, fds, &pid, err) < 0)
        return -1;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_sys(err, "cannot wait for git");
    if (status == 0)
        return 0;
    last_line(said, why, sizeof(why));
    return err_set(err, ERR_INVALID, "git failed: %s", why[0] ? why : "git printed no reason");
}

int git_ask(const char *const *words, struct buf *ret, struct err *err) {
    char bytes[4096];
    ssize_t n;
    int out DEFER_CLOSE = memfd_create("git", MFD_CLOEXEC);
    if (out < 0)
        return err_sys(err, "cannot create a temporary file for the output of git");
    if (git_run(words, out, err) < 0)
        return -1;
    lseek(out, 0, SEEK_SET);
    while ((n = read(out, bytes, sizeof(bytes))) > 0)
        if (!buf_add(ret, bytes, (size_t)n))
            return err_set(err, ERR_LIMIT, "the output of git is too large");
    while (ret->len && ret->data[ret->len - 1] == '\n')
        ret->data[--ret->len] = '\0';
    return n < 0 ? err_sys(err, "cannot read the output of git") : 0;
}
