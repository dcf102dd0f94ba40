#include "cli/ship/git.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"

enum { WORDS_MAX = 48, ENV_MAX = 16 };

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

/* One run of git. */
struct git_call {
    const char *const *words;
    const char *const *env; /* more variables; NULL: none */
    bool as_owner;          /* with the configuration of the owner and the system */
    int in, out;
};

/* GIT_ALLOW_PROTOCOL: unlike protocol.allow, a repository's own configuration cannot widen it. An
 * object that is missing would otherwise be fetched by a program that the repository names. */
static const char *const always_env[] = {"GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0",
                                         "GIT_ALLOW_PROTOCOL=file", "GIT_NO_LAZY_FETCH=1",
                                         "LC_ALL=C"};
static const char *const clean_env[] = {"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
                                        "GIT_ATTR_NOSYSTEM=1", "HOME=/nonexistent"};
/* Variables that lead to the owner's configuration. */
static const char *const owner_names[] = {"HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL",
                                          "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"};
#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* Finds the entry "NAME=VALUE" of a variable in the environment; NULL: the variable is not set. */
static const char *env_entry(const char *name) {
    size_t n = strlen(name);
    for (char **e = environ; *e; e++)
        if (strncmp(*e, name, n) == 0 && (*e)[n] == '=')
            return *e;
    return NULL;
}

static void make_env(const struct git_call *c, const char *ret[ENV_MAX + 1]) {
    const char *path = env_entry("PATH");
    size_t n = 0;
    ret[n++] = path ? path : "PATH=/usr/bin:/bin";
    for (size_t i = 0; i < COUNT(always_env); i++)
        ret[n++] = always_env[i];
    for (size_t i = 0; !c->as_owner && i < COUNT(clean_env); i++)
        ret[n++] = clean_env[i];
    for (size_t i = 0; c->as_owner && i < COUNT(owner_names); i++)
        if (env_entry(owner_names[i]))
            ret[n++] = env_entry(owner_names[i]);
    for (size_t i = 0; c->env && c->env[i] && n < ENV_MAX; i++)
        ret[n++] = c->env[i];
    ret[n] = NULL;
}

static int git_start(const struct git_call *c, int said, pid_t *ret, struct err *err) {
    const char *argv[WORDS_MAX + ALWAYS + 1], *env[ENV_MAX + 1];
    const char *const *words = c->words;
    const int fds[3] = {c->in, c->out, said};
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
    make_env(c, env);
    int r = posix_spawnp(ret, "git", &actions, NULL, (char *const *)argv, (char *const *)env);
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

static int git_call(const struct git_call *c, struct err *err) {
    char why[300];
    pid_t pid;
    int status, said DEFER_CLOSE = memfd_create("git", MFD_CLOEXEC);
    if (said < 0)
        return err_sys(err, "cannot create a file in memory (memfd) for the errors of git");
    if (git_start(c, said, &pid, err) < 0)
        return -1;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_sys(err, "cannot wait for git");
    if (status == 0)
        return 0;
    last_line(said, why, sizeof(why));
    return err_set(err, ERR_INVALID, "git failed: %s", why[0] ? why : "git printed no reason");
}

int git_run(const char *const *words, int out, struct err *err) {
    return git_feed(words, -1, out, err);
}

int git_feed(const char *const *words, int in, int out, struct err *err) {
    const struct git_call c = {.words = words, .in = in, .out = out};
    return git_call(&c, err);
}

/* Adds the standard output of the call to `ret`, without trailing newlines. */
static int git_read(struct git_call *c, struct buf *ret, struct err *err) {
    char bytes[4096];
    ssize_t n;
    int out DEFER_CLOSE = memfd_create("git", MFD_CLOEXEC);
    if (out < 0)
        return err_sys(err, "cannot create a temporary file for the output of git");
    c->out = out;
    if (git_call(c, err) < 0)
        return -1;
    lseek(out, 0, SEEK_SET);
    while ((n = read(out, bytes, sizeof(bytes))) > 0)
        if (!buf_add(ret, bytes, (size_t)n))
            return err_set(err, ERR_LIMIT, "the output of git is too large");
    while (ret->len && ret->data[ret->len - 1] == '\n')
        ret->data[--ret->len] = '\0';
    return n < 0 ? err_sys(err, "cannot read the output of git") : 0;
}

int git_ask(const char *const *words, struct buf *ret, struct err *err) {
    struct git_call c = {.words = words, .in = -1};
    return git_read(&c, ret, err);
}

int git_ask_as_owner(const char *const *words, const char *const *env, struct buf *ret,
                     struct err *err) {
    struct git_call c = {.words = words, .env = env, .as_owner = true, .in = -1};
    return git_read(&c, ret, err);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st, (void)type, (void)at;
    return remove(path), 0;
}

void git_temp_remove(const char *dir) {
    enum { OPEN_DIRS = 16 };
    nftw(dir, remove_entry, OPEN_DIRS, FTW_DEPTH | FTW_PHYS);
}
