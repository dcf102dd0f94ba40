#include "image/apart.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/dir.h"
#include "base/native.h"
#include "image/config.h"
#include "image/jail.h"

enum {
    FD_NULL = 1,
    FD_REPORT = 4,
    FD_WORDS = 5,
    FD_READER = 6,
    AWAY = 16,
    LINE_BYTES = CONFIG_BYTES_MAX + 256
};

/* ---- reader ---- */

/* The reader, the process that parses the archive, dies with its supervisor process. Nothing else
 * would stop a reader that a hostile archive took over. */
static void stay_with(pid_t parent) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
        _exit(1);
}

/* The pipe to the supervisor replaces FD_REPORT, and stderr becomes /dev/null: the reader must not
 * be able to write to the daemon or to a log. */
static void be_reader(int dir, int words, apart_fn *fn, void *arg) {
    struct buf config DEFER(buf_done) = BUF(CONFIG_BYTES_MAX + 1);
    struct report report = {.fd = FD_REPORT};
    struct err err;
    bool below = fcntl(APART_FD_BELOW, F_GETFD) >= 0;
    if (dup3(words, FD_REPORT, 0) < 0 || (!INSTRUMENTED && dup2(FD_NULL, STDERR_FILENO) < 0) ||
        (below && dup2(APART_FD_BELOW, APART_FD_READ_BELOW) < 0))
        _exit(1);
    if (jail_enter(dir, below ? APART_FD_READ_BELOW : FD_REPORT, &err) == 0 &&
        fn(arg, &report, &config, &err) == 0) {
        report_config(&report, config.data ? config.data : "null");
        _exit(0);
    }
    report_error(&report, &err);
    _exit(2);
}

/* ---- supervisor ---- */

struct hearing {
    struct report *report;
    struct buf line, *config;
    struct err failed;
    bool has_failed;
};

static void hearing_done(struct hearing *h) {
    buf_done(&h->line);
}

static const char *apart_text_of(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

static void hear_error(struct hearing *h, const json_t *error) {
    if (h->has_failed)
        return;
    h->has_failed = true;
    err_set(&h->failed, err_code_named(apart_text_of(error, "code")), "%s",
            apart_text_of(error, "message"));
    if (*apart_text_of(error, "remedy"))
        err_remedy(&h->failed, "%s", apart_text_of(error, "remedy"));
}

static int hear_config(struct hearing *h, const json_t *config, struct err *err) {
    char *text DEFER_FREE = json_dumps(config, JSON_COMPACT);
    buf_drop(h->config, h->config->len);
    return text && buf_add(h->config, text, strlen(text))
               ? 0
               : err_set(err, ERR_LIMIT, "the image's configuration is too large");
}

static int hear_line(struct hearing *h, const char *line, size_t n, struct err *err) {
    json_t *word = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *error = json_object_get(word, "error"), *config = json_object_get(word, "config");
    const json_t *entries = json_object_get(word, "entries"),
                 *bytes = json_object_get(word, "bytes");
    int r = 0;
    if (error)
        hear_error(h, error);
    else if (config)
        r = hear_config(h, config, err);
    else if (json_is_integer(entries) && json_is_integer(bytes))
        report_progress(h->report, (uint64_t)json_integer_value(entries),
                        (uint64_t)json_integer_value(bytes));
    json_decref(word);
    return r;
}

static int hear_lines(struct hearing *h, struct err *err) {
    char *newline;
    while (h->line.len && (newline = memchr(h->line.data, '\n', h->line.len))) {
        size_t n = (size_t)(newline - h->line.data);
        if (hear_line(h, h->line.data, n, err) < 0)
            return -1;
        buf_drop(&h->line, n + 1);
    }
    return 0;
}

/* Waits until `fd` is readable. Exits if the daemon is gone: nobody needs the result then. */
static void await(int fd, const struct hearing *h) {
    struct pollfd fds[] = {{.fd = fd, .events = POLLIN}, {.fd = h->report->fd}};
    if (ppoll(fds, 2, NULL, NULL) > 0 && fds[1].revents)
        _exit(1);
}

static int hear_all(struct hearing *h, struct err *err) {
    char piece[4096];
    for (;;) {
        await(FD_WORDS, h);
        ssize_t n = read(FD_WORDS, piece, sizeof(piece));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? err_sys(err, "cannot read from the archive reader process") : 0;
        if (!buf_add(&h->line, piece, (size_t)n))
            return err_set(err, ERR_INVALID,
                           "the archive reader process sent a message that is too long");
        if (hear_lines(h, err) < 0)
            return -1;
    }
}

static int await_reader(pid_t pid, const struct hearing *h, struct err *err) {
    int status = 0;
    await(FD_READER, h);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (h->has_failed) {
        *err = h->failed;
        return -1;
    }
    return status == 0 ? 0
                       : err_set(err, ERR_INVALID,
                                 "the archive reader process ended with status %d", status);
}

/* ---- check of the result ---- */

static bool is_expected(const char *name) {
    static const char *const names[] = {".", "..", "root", "spool"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* The image id does not cover a file outside root/ and spool/, so such a file is an error: machines
 * would use it as part of the image. */
static int check_left(struct err *err) {
    DIR *d DEFER(dir_close) = dir_list(AT_FDCWD, ".");
    errno = d ? 0 : errno;
    for (struct dirent *e; d && (e = readdir(d)); errno = 0)
        if (!is_expected(e->d_name))
            return err_set(err, ERR_INVALID,
                           "the process that reads the archive created '%.60s' beside the image's "
                           "files; the archive may be hostile",
                           e->d_name);
    return errno ? err_sys(err, "cannot list the image's directory") : 0;
}

int apart_read(int dir, int last, struct report *report, apart_fn *fn, void *arg, struct buf *ret,
               struct err *err) {
    struct hearing h DEFER(hearing_done) = {
        .report = report, .line = BUF(LINE_BYTES), .config = ret};
    int words[2];
    if (pipe2(words, O_CLOEXEC) < 0)
        return err_sys(err, "cannot create a pipe to the archive reader process");
    /* Keep the pipe above the descriptors with a fixed meaning (0 to 5). */
    int from = fcntl(words[0], F_DUPFD_CLOEXEC, AWAY), to = fcntl(words[1], F_DUPFD_CLOEXEC, AWAY);
    pid_t parent = getpid(), pid = from < 0 || to < 0 ? -1 : fork();
    if (pid == 0) {
        stay_with(parent);
        be_reader(dir, to, fn, arg);
    }
    if (pid < 0)
        return err_sys(err, "cannot start the archive reader process");
    close(STDIN_FILENO);
    close(words[1]);
    close(to);
    int reader = (int)syscall(SYS_pidfd_open, pid, 0);
    if (reader < 0 || dup2(from, FD_WORDS) < 0 || dup2(reader, FD_READER) < 0)
        return err_sys(err, "cannot read from the archive reader process");
    if (jail_enter(dir, last, err) < 0 || hear_all(&h, err) < 0 || await_reader(pid, &h, err) < 0)
        return -1;
    return check_left(err);
}
