#include "cli/console/browser.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"

enum { LIST_MAX = 4096, WORDS_MAX = 16 };

static bool is_set(const char *name) {
    const char *value = getenv(name);
    return value && *value;
}

bool browser_may_show(void) {
    bool is_other = geteuid() == 0 && is_set("SUDO_UID");
    return !is_other && (is_set("DISPLAY") || is_set("WAYLAND_DISPLAY"));
}

/* The next command of the list, which this changes; NULL at its end. */
static const char *browser_next(char **list) {
    const char *command;
    do
        command = strsep(list, ":");
    while (command && strspn(command, " ") == strlen(command));
    return command;
}

/* Replaces this process by a command, whose words are separated by blanks. "%s" is the URL. */
static void browser_exec(const char *command, char *url) {
    char *words DEFER_FREE = strdup(command), *rest = words, *word;
    char *argv[WORDS_MAX + 2];
    size_t count = 0;
    bool named = false;
    while ((word = strsep(&rest, " ")) && count < WORDS_MAX) {
        bool is_url = strcmp(word, "%s") == 0;
        named |= is_url;
        if (*word)
            argv[count++] = is_url ? url : word;
    }
    if (!named)
        argv[count++] = url;
    argv[count] = NULL;
    execvp(argv[0], argv);
}

/*
 * In a session of its own, so that Ctrl+C ends only carrel. What a browser prints is of no use
 * here.
 */
static void browser_child(const char *command, char *url, int told) {
    int none = open("/dev/null", O_RDWR | O_CLOEXEC);
    setsid();
    if (none >= 0 && dup2(none, 0) == 0 && dup2(none, 1) == 1 && dup2(none, 2) == 2)
        browser_exec(command, url);
    while (write(told, "", 1) < 0 && errno == EINTR)
        continue;
    _exit(127);
}

static void browser_name(struct browser *b, const char *command) {
    command += strspn(command, " ");
    size_t n = strcspn(command, " ");
    const char *slash = memrchr(command, '/', n);
    const char *name = slash ? slash + 1 : command;
    snprintf(b->name, sizeof(b->name), "%.*s", (int)(command + n - name), name);
}

/* Starts one command; false if its program cannot be executed. */
static bool browser_start(struct browser *b, const char *command, const char *url) {
    int ends[2];
    char copy[512], failed;
    ssize_t n;
    if (snprintf(copy, sizeof(copy), "%s", url) >= (int)sizeof(copy) || pipe2(ends, O_CLOEXEC) < 0)
        return false;
    b->pid = fork();
    if (b->pid == 0)
        browser_child(command, copy, ends[1]);
    close(ends[1]);
    while ((n = read(ends[0], &failed, 1)) < 0 && errno == EINTR)
        continue; /* it ends when the program has begun */
    close(ends[0]);
    if (b->pid > 0 && n == 0) {
        browser_name(b, command);
        return true;
    }
    if (b->pid > 0)
        waitpid(b->pid, NULL, 0);
    b->pid = 0;
    return false;
}

bool browser_open(struct browser *b, const char *url) {
    const char *list = is_set("BROWSER") ? getenv("BROWSER") : "xdg-open", *command;
    char copy[LIST_MAX], *rest = copy;
    snprintf(copy, sizeof(copy), "%s", list);
    while ((command = browser_next(&rest)))
        if (browser_start(b, command, url))
            return true;
    return false;
}

int browser_failed(struct browser *b) {
    int status;
    if (!b->pid || waitpid(b->pid, &status, WNOHANG) != b->pid)
        return 0;
    b->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
