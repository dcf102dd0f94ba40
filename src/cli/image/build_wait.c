#include "cli/image/build_wait.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/defer.h"
#include "base/text/base64.h"
#include "base/utf8.h"

enum {
    TICK_MS = 200,      /* how often the time is shown on a terminal */
    PATIENCE_MS = 1000, /* what is faster is not shown on a terminal */
    LINE_MS = 5000,     /* how often it is shown elsewhere */
    ASK_MS = 1000,      /* how often the daemon is told that it is needed */
    WHAT_MAX = 60,      /* bytes of the recipe's line that are repeated */
    COLUMNS = 80,
    EVENT_MAX = 4 << 20,
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

static void build_wait_tick(struct build_wait *w) {
    uint64_t now = monotonic_ms(), last = w->shown ? w->shown_ms : w->started_ms;
    if (!w->silent && now - last >= (uint64_t)(!w->terminal ? LINE_MS
                                               : w->shown   ? TICK_MS
                                                            : PATIENCE_MS))
        build_wait_show(w, now);
}

/* Sends a request, and waits until its answer begins. */
static int build_wait_head(struct build_wait *w, const struct client_request *r, struct err *err) {
    const struct http_head *head;
    if (client_send(w->client, w->client->http, r, err) < 0)
        return -1;
    struct pollfd p = {.fd = http_client_fd(w->client->http), .events = POLLIN};
    for (int n; (n = poll(&p, 1, TICK_MS)) == 0 || (n < 0 && errno == EINTR);)
        build_wait_tick(w);
    return client_answer(w->client->http, &head, err);
}

int build_wait_call(struct build_wait *w, const struct client_request *r, json_t **ret,
                    struct err *err) {
    struct buf text DEFER(buf_done) = BUF(CLIENT_BODY_MAX);
    if (build_wait_head(w, r, err) < 0 || http_client_collect(w->client->http, &text, err) < 0)
        return -1;
    *ret = json_loadb(text.data ? text.data : "", text.len, 0, NULL);
    return *ret ? 0 : err_set(err, ERR_INTERNAL, "the daemon's answer is not JSON");
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

static void note_output(struct build_wait *w, const char *bytes, size_t n) {
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

static int take_output(struct build_wait *w, const json_t *event, struct err *err) {
    const json_t *text = json_object_get(event, "data");
    if (text) {
        note_output(w, json_string_value(text), json_string_length(text));
        return 0;
    }
    const char *encoded = client_text(event, "data_base64");
    size_t n = strlen(encoded);
    char *bytes DEFER_FREE = malloc(n + 1);
    if (!bytes || !base64_decode(encoded, n, bytes, &n))
        return err_set(err, ERR_INTERNAL, "the daemon sent damaged output of the command");
    note_output(w, bytes, n);
    return 0;
}

static int build_take_event(struct build_wait *w, const char *line, size_t n, json_t **ret,
                            struct err *err) {
    json_t *event DEFER(json_decrefp) = json_loadb(line, n, 0, NULL);
    const char *type = client_text(event, "type");
    const json_t *failure = json_object_get(event, "error");
    if (failure)
        return err_set(err, ERR_INTERNAL, "%s", client_text(failure, "message"));
    if (strcmp(type, "stdout") == 0 || strcmp(type, "stderr") == 0)
        return take_output(w, event, err);
    if (strcmp(type, "exit") == 0 && !*ret)
        *ret = json_incref(json_object_get(event, "exec"));
    return 0;
}

static int build_take_lines(struct build_wait *w, struct buf *text, json_t **ret, struct err *err) {
    char *at = text->data, *end;
    for (; (end = memchr(at, '\n', text->len - (size_t)(at - text->data))); at = end + 1)
        if (build_take_event(w, at, (size_t)(end - at), ret, err) < 0)
            return -1;
    buf_drop(text, (size_t)(at - text->data));
    return 0;
}

/* Reads the next piece of the answer: 1, 0 at the end, or -1. */
static int build_wait_piece(struct build_wait *w, const char **ret, size_t *ret_n,
                            struct err *err) {
    int more;
    http_client_set_timeout(w->client->http, TICK_MS);
    while ((more = http_client_read(w->client->http, ret, ret_n, err)) < 0 &&
           err->code == ERR_TIMEOUT)
        build_wait_tick(w);
    http_client_set_timeout(w->client->http, -1);
    return more;
}

int build_wait_exec(struct build_wait *w, const struct client_request *r, json_t **ret,
                    struct err *err) {
    struct client_request streamed = *r;
    struct buf text DEFER(buf_done) = BUF(EVENT_MAX);
    json_t *exec DEFER(json_decrefp) = NULL;
    const char *bytes;
    size_t n;
    int more;
    streamed.accept = "application/x-ndjson";
    if (build_wait_head(w, &streamed, err) < 0)
        return -1;
    while ((more = build_wait_piece(w, &bytes, &n, err)) > 0) {
        if (!buf_add(&text, bytes, n))
            return err_set(err, ERR_LIMIT, "the daemon sent an event that is too long");
        if (build_take_lines(w, &text, &exec, err) < 0)
            return -1;
        build_wait_tick(w);
    }
    if (more < 0)
        return -1;
    if (!exec)
        return err_set(err, ERR_UNKNOWN, "the daemon ended while the command was running");
    *ret = json_incref(exec);
    return 0;
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
    while ((ended = waitpid(pid, ret_status, WNOHANG)) == 0 || (ended < 0 && errno == EINTR)) {
        usleep(TICK_MS * 1000);
        tell_needed(w);
        build_wait_tick(w);
    }
}
