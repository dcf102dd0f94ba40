/*
 * Preloaded into a daemon: while the file $FAIL_WRITE exists, writes to some files fail. It says
 * which, and how: "ERRNO PERCENT WINDOW SUFFIX PAUSE SKIP", as in "28 100 0 carrel.db-wal 0 0".
 * With a window of so many milliseconds all writes within it fail, or none: a transaction is many
 * writes, and would hardly ever succeed if chance decided each. With a pause of so many
 * milliseconds a write fails only then. The first SKIP writes to such a file pass; they are counted
 * again when the text changes, also behind SKIP. It is read at every write, so that a test changes
 * its mind at any time.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static unsigned now_in(unsigned window_ms) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (unsigned)((t.tv_sec * 1000 + t.tv_nsec / 1000000) / window_ms);
}

static bool by_chance(int percent, unsigned window_ms) {
    static atomic_uint calls;
    /* Each process at another place, or every daemon would fail at the same write. */
    unsigned n =
        window_ms ? now_in(window_ms) : atomic_fetch_add(&calls, 1) + (unsigned)getpid() * 7919;
    return (int)((n * 2654435761u >> 8) % 100) < percent;
}

static bool ends_with(int fd, const char *suffix) {
    char link[64], path[4096];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    size_t len = strlen(suffix);
    return n >= (ssize_t)len && memcmp(path + n - len, suffix, len) == 0;
}

/* One of the first so many writes since the control file says this. */
static bool is_skipped(const char *text, unsigned skip) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char last[128];
    static unsigned passed;
    pthread_mutex_lock(&lock);
    if (strcmp(last, text) != 0) {
        snprintf(last, sizeof(last), "%s", text);
        passed = 0;
    }
    bool skipped = passed < skip;
    passed += skipped;
    pthread_mutex_unlock(&lock);
    return skipped;
}

/* 0, or the errno with which this write fails. */
static int write_fault(int fd) {
    const char *flag = getenv("FAIL_WRITE");
    char text[128], suffix[64];
    unsigned window_ms, pause_ms, skip;
    int number, percent, control = flag ? open(flag, O_RDONLY | O_CLOEXEC) : -1;
    if (control < 0)
        return 0;
    ssize_t n = read(control, text, sizeof(text) - 1);
    close(control);
    text[n > 0 ? n : 0] = '\0';
    if (sscanf(text, "%d %d %u %63s %u %u", &number, &percent, &window_ms, suffix, &pause_ms,
               &skip) != 6 ||
        !ends_with(fd, suffix) || is_skipped(text, skip) || !by_chance(percent, window_ms))
        return 0;
    const struct timespec pause = {pause_ms / 1000, pause_ms % 1000 * 1000000L};
    nanosleep(&pause, NULL);
    return number;
}

static ssize_t written(int fd, const void *bytes, size_t len, off64_t at) {
    int kept = errno, fault = write_fault(fd);
    if (fault) {
        errno = fault;
        return -1;
    }
    errno = kept;
    return at < 0 ? syscall(SYS_write, fd, bytes, len) : syscall(SYS_pwrite64, fd, bytes, len, at);
}

ssize_t write(int fd, const void *bytes, size_t len) {
    return written(fd, bytes, len, -1);
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t at) {
    return written(fd, bytes, len, at);
}

#if !defined(__USE_FILE_OFFSET64)
ssize_t pwrite(int fd, const void *bytes, size_t len, off_t at) {
    return written(fd, bytes, len, at);
}
#endif
