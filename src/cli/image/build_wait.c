#include "cli/image/build_wait.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/defer.h"
#include "base/utf8.h"
#include "cli/safe.h"

enum {
    TICK_MS = 200,      /* how often the time is shown on a terminal */
    PATIENCE_MS = 1000, /* what is faster is not shown on a terminal */
    LINE_MS = 5000,     /* how often it is shown elsewhere */
    ASK_MS = 1000,      /* how often the daemon is told that it is needed */
    WHAT_MAX = 60,      /* bytes of the recipe's line that are repeated */
    COLUMNS = 80,
};

void build_wait_begin(struct build_wait *w, struct client *c, const char *what, bool silent) {
    *w = (struct build_wait){.client = c,
                             .what = what,
                             .silent = silent,
                             .terminal = isatty(STDERR_FILENO),
                             .started_ms = monotonic_ms(),
                             .output = BUF(2 * BUILD_WAIT_TAIL)};
}

static void build_wait_erase(struct build_wait *w) {
    if (w->shown && w->terminal)
        fwrite("\r\033[K", 1, 4, stderr);
    w->shown = false;
}

void build_wait_end(struct build_wait *w) {
    build_wait_erase(w);
    buf_done(&w->output);
}

void build_wait_output(struct build_wait *w) {
    build_wait_erase(w);
    if (w->output_bytes > w->output.len)
        fprintf(stderr, "[the first %llu bytes of the output are left out]\n",
                (unsigned long long)(w->output_bytes - w->output.len));
    if (w->output.len)
        safe_text(stderr, w->output.data, w->output.len);
}

static size_t terminal_columns(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : COLUMNS;
}

/* Cuts a text after so many bytes, at the end of a character. */
static void text_cut(char *text, size_t max) {
    if (strlen(text) > max)
        text[utf8_end(text, max)] = '\0';
}

static void build_wait_show(struct build_wait *w, uint64_t now) {
    char seconds[24];
    size_t room = terminal_columns() - 1;
    char *what DEFER_FREE = safe_copy(w->what), *last DEFER_FREE = safe_copy(w->last);
    snprintf(seconds, sizeof(seconds), "%llu s", (unsigned long long)(now - w->started_ms) / 1000);
    text_cut(what, WHAT_MAX);
    if (w->terminal) { /* a line that is too long would not stay in place */
        size_t used = strlen(what) + strlen(seconds) + 4;
        text_cut(last, used < room ? room - used : 0);
        fwrite("\r\033[K", 1, 4, stderr);
    }
    fprintf(stderr, "%s  %s%s%s", what, seconds, *last ? "  " : "", last);
    if (!w->terminal)
        fputc('\n', stderr);
    fflush(stderr);
    w->shown = true;
    w->shown_ms = now;
}

void build_wait_tick(struct build_wait *w) {
    uint64_t now = monotonic_ms(), last = w->shown ? w->shown_ms : w->started_ms;
    if (!w->silent && now - last >= (uint64_t)(!w->terminal ? LINE_MS
                                               : w->shown   ? TICK_MS
                                                            : PATIENCE_MS))
        build_wait_show(w, now);
}

/* ---- output of a command ---- */

/* Keeps the last line that has more than blanks. */
static void note_line(struct build_wait *w) {
    bool blank = true;
    w->line[utf8_end(w->line, w->line_len)] = '\0';
    for (const char *c = w->line; *c; c++)
        blank &= isspace((unsigned char)*c) != 0;
    if (!blank)
        memcpy(w->last, w->line, sizeof(w->last));
    w->line_len = 0;
}

void build_wait_note(struct build_wait *w, const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\n' || bytes[i] == '\r')
            note_line(w);
        else if (bytes[i] && w->line_len < sizeof(w->line) - 1)
            w->line[w->line_len++] = bytes[i];
    }
    w->output_bytes += n;
    if (n > BUILD_WAIT_TAIL) {
        bytes += n - BUILD_WAIT_TAIL;
        n = BUILD_WAIT_TAIL;
    }
    if (w->output.len + n > BUILD_WAIT_TAIL)
        buf_drop(&w->output, w->output.len + n - BUILD_WAIT_TAIL);
    (void)!buf_add(&w->output, bytes, n);
}

/* ---- a process of this host ---- */

static void tell_needed(struct build_wait *w) {
    const struct client_request r = {.method = "GET", .target = "/healthz", .accept = "*/*"};
    uint64_t now = monotonic_ms();
    struct err err;
    if (now - w->asked_ms < ASK_MS)
        return;
    w->asked_ms = now;
    client_call(w->client, &r, NULL, &err); /* if it is gone, the next real request says so */
}

void build_wait_process(struct build_wait *w, pid_t pid, int *ret_status) {
    pid_t ended;
    int handle DEFER_CLOSE = (int)syscall(SYS_pidfd_open, pid, 0);
    while ((ended = waitpid(pid, ret_status, WNOHANG)) == 0 || (ended < 0 && errno == EINTR)) {
        struct pollfd end = {.fd = handle, .events = POLLIN}; /* its end is an event */
        poll(&end, 1, TICK_MS);
        tell_needed(w);
        build_wait_tick(w);
    }
}
