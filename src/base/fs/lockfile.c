#include "base/fs/lockfile.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/defer.h"

enum { LOCK_STEP_US = 10000, LOCK_TRIES = 500 };

static void read_holder(int fd, struct lock_holder *ret) {
    char text[LOCK_WORDS_SIZE + 32];
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    char *words = strchr(text, '\n');
    if (words)
        *words++ = '\0';
    snprintf(ret->pid, sizeof(ret->pid), "%.20s", strtol(text, NULL, 10) > 0 ? text : "unknown");
    snprintf(ret->words, sizeof(ret->words), "%.*s", words ? (int)strcspn(words, "\n") : 0,
             words ? words : "");
}

/* A zombie is a killed process that its parent has not reaped: its pid exists, but it is dead. */
static bool is_zombie(long pid) {
    char path[40], text[512];
    snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    int fd DEFER_CLOSE = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end && strncmp(name_end, ") Z", 3) == 0;
}

bool lockfile_lives(const struct lock_holder *h) {
    long pid = strtol(h->pid, NULL, 10);
    if (pid <= 0)
        return true;
    return (kill((pid_t)pid, 0) == 0 || errno != ESRCH) && !is_zombie(pid);
}

/*
 * If a daemon is killed while it starts a program, the new child holds the lock until its exec().
 * So if the lock is taken but its holder is dead, try again for a short time.
 */
int lockfile_take(const char *path, const char *words, bool *is_taken, struct lock_holder *holder,
                  struct err *err) {
    char text[LOCK_WORDS_SIZE + 32];
    *is_taken = false;
    int fd DEFER_CLOSE = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, "cannot open lock file '%s'", path);
    for (int tries = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; tries++) {
        read_holder(fd, holder);
        *is_taken = lockfile_lives(holder) || tries == LOCK_TRIES;
        if (*is_taken)
            return err_set(err, ERR_BUSY, "lock file '%s' is held by the process with pid %s", path,
                           holder->pid);
        usleep(LOCK_STEP_US);
    }
    int n = snprintf(text, sizeof(text), "%d\n%s\n", (int)getpid(), words);
    if (n >= (int)sizeof(text))
        return err_set(err, ERR_INVALID, "the text for lock file '%s' is too long", path);
    if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) != n)
        return err_sys(err, "cannot write lock file '%s'", path);
    return TAKE_FD(fd);
}

int lockfile_read(const char *path, struct lock_holder *ret) {
    int fd DEFER_CLOSE = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    read_holder(fd, ret);
    return 0;
}
