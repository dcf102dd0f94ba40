/*
 * Preloaded into a daemon: whenever it begins an answer that says that something was done, what is
 * below $CARREL_HOME and not on the disk at that moment is added to the file $RECORD_SYNC, one path
 * a line, and what got its name too early as "early PATH".
 */
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "tests/sync_record.h"

__attribute__((constructor)) static void begin(void) {
    sync_seen.all_threads = true;
}

static void add_line(int to, const char *word, const char *path) {
    char line[SYNC_PATH + 16];
    int n = snprintf(line, sizeof(line), "%s%s\n", word, path);
    (void)!syscall(SYS_write, to, line, (size_t)n);
}

static void record(const char *to_path, const char *home) {
    size_t n = strlen(home);
    int to = (int)syscall(SYS_openat, AT_FDCWD, to_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                          0600);
    if (to < 0)
        abort();
    pthread_mutex_lock(&sync_seen.lock);
    for (size_t i = 0; i < sync_seen.count; i++)
        if (strncmp(sync_seen.files[i].path, home, n) == 0)
            add_line(to, "", sync_seen.files[i].path);
    if (strncmp(sync_seen.early, home, n) == 0)
        add_line(to, "early ", sync_seen.early);
    if (sync_seen.lost)
        add_line(to, "lost ", home);
    sync_seen.early[0] = '\0';
    pthread_mutex_unlock(&sync_seen.lock);
    close(to);
}

static bool is_answer(const struct msghdr *m) {
    static const char word[] = "HTTP/1.1 2";
    return m->msg_iovlen > 0 && m->msg_iov->iov_len > sizeof(word) &&
           memcmp(m->msg_iov->iov_base, word, sizeof(word) - 1) == 0;
}

ssize_t sendmsg(int sock, const struct msghdr *m, int flags) {
    const char *to = getenv("RECORD_SYNC"), *home = getenv("CARREL_HOME");
    int kept = errno;
    if (to && home && is_answer(m))
        record(to, home);
    errno = kept;
    return syscall(SYS_sendmsg, sock, m, flags);
}
