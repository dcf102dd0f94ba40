/* Runs gpgv, as the only judge of signatures, and reads its answer. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "packages/worker.h"

#define GPGV "/usr/bin/gpgv"

enum { STATUS_MAX = 64 << 10, STATUS_FD = 3 };

/* In the child: standard input is the document, standard output the text, 3 the status. */
static _Noreturn void become_gpgv(const char *keyring, int text, int status) {
    static char *const no_env[] = {NULL};
    const char *const words[] = {"gpgv",          "--quiet", "--keyring",   keyring,
                                 "--weak-digest", "SHA1",    "--status-fd", "3",
                                 "--output",      "-",       NULL};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(WORKER_DOCUMENT, 0) < 0 || dup2(text, 1) < 0 || dup2(null, 2) < 0 ||
        dup2(status, STATUS_FD) < 0)
        _exit(126);
    close_range(STATUS_FD + 1, ~0u, 0);
    if (worker_confine_verifier() < 0)
        _exit(126);
    execve(GPGV, (char *const *)words, no_env);
    _exit(127);
}

/* Reads both pipes to their ends. */
static bool hear_gpgv(int fds[2], struct buf *const to[2]) {
    bool whole = true;
    while (fds[0] >= 0 || fds[1] >= 0) {
        struct pollfd p[2] = {{.fd = fds[0], .events = POLLIN}, {.fd = fds[1], .events = POLLIN}};
        if (ppoll(p, 2, NULL, NULL) < 0 && errno != EINTR)
            return false;
        for (int i = 0; i < 2; i++) {
            char bytes[16384];
            if (fds[i] < 0 || !p[i].revents)
                continue;
            ssize_t n = read(fds[i], bytes, sizeof(bytes));
            if (n > 0)
                whole &= buf_add(to[i], bytes, (size_t)n);
            else if (n == 0 || errno != EINTR)
                close_fd(&fds[i]);
        }
    }
    return whole;
}

static size_t count_lines(const char *status, const char *word) {
    size_t count = 0, n = strlen(word);
    for (const char *line = status; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, "[GNUPG:] ", 9) == 0 && strncmp(line + 9, word, n) == 0 &&
            (line[9 + n] == ' ' || line[9 + n] == '\n'))
            count++;
    }
    return count;
}

/* One signed text, a good signature, and no word of trouble but a key that is not in the ring. */
static bool status_is_good(const char *status) {
    static const char *const bad[] = {"BADSIG", "EXPSIG", "EXPKEYSIG", "REVKEYSIG",
                                      "NODATA", "ERROR",  "FAILURE",   "UNEXPECTED"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        if (count_lines(status, bad[i]))
            return false;
    return count_lines(status, "PLAINTEXT") == 1 && count_lines(status, "GOODSIG") > 0 &&
           count_lines(status, "GOODSIG") == count_lines(status, "VALIDSIG");
}

static int judge(int status, const char *said, struct err *err) {
    if (!WIFEXITED(status) || WEXITSTATUS(status) >= 126)
        return err_set(err, ERR_UNSUPPORTED, "cannot run program " GPGV);
    if (status_is_good(said))
        return 0;
    return err_set(err, ERR_DENIED, "no key of the keyring signed the document");
}

int worker_verify(const char *keyring, struct buf *ret, struct err *err) {
    struct buf said DEFER(buf_done) = BUF(STATUS_MAX);
    struct buf *const to[2] = {ret, &said};
    int text[2], status[2], code = 0;
    if (pipe2(text, O_CLOEXEC) < 0 || pipe2(status, O_CLOEXEC) < 0)
        return err_sys(err, "cannot create a pipe for gpgv");
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(err, "cannot start gpgv");
    if (pid == 0)
        become_gpgv(keyring, text[1], status[1]);
    close(text[1]);
    close(status[1]);
    int ours[2] = {text[0], status[0]};
    if (worker_confine(err) < 0)
        return -1;
    bool whole = hear_gpgv(ours, to);
    while (waitpid(pid, &code, 0) < 0)
        if (errno != EINTR)
            return err_sys(err, "cannot wait for gpgv");
    if (!whole)
        return err_set(err, ERR_LIMIT, "the signed document is too large");
    return judge(code, said.data ? said.data : "", err);
}
