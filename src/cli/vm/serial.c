/* carrel serial: shows the serial console of a vm, and types into it. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/machine.h"
#include "cli/options.h"
#include "cli/session.h"
#include "io/ws_client.h"

enum { MESSAGE_MAX = 64 << 10, TYPED = 1024, HEAD_MAX = 24 };

struct serial_options {
    uint64_t offset;
    bool log, help;
};

#define AT(member) offsetof(struct serial_options, member)

const struct option_row serial_rows[] = {
    {0, "log", NULL, OPTION_FLAG, AT(log), "print what the console has shown so far, and exit"},
    {0, "offset", "BYTES", OPTION_NUMBER, AT(offset),
     "begin at this byte of all that the vm wrote (default: the oldest one kept)"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

struct console {
    struct ws_client *ws;
    int daemon;
    char head[HEAD_MAX]; /* the line with the offset, before all other bytes */
    size_t head_n;
    bool has_head, is_over;
    bool hears; /* standard input is still open */
    bool raw;
    struct termios saved;
    unsigned leave_keys; /* pressed in a row since leave_ms */
    uint64_t leave_ms;
};

/* Skips the first line. False: it is too long. */
static bool console_skip_head(struct console *c, const char **data, size_t *n) {
    while (*n && !c->has_head) {
        if (c->head_n == sizeof(c->head))
            return false;
        c->head[c->head_n++] = **data;
        c->has_head = **data == '\n';
        ++*data;
        --*n;
    }
    return true;
}

static bool console_says_end(const struct ws_event *e) {
    json_t *said DEFER(json_decrefp) = json_loadb(e->data, e->n, 0, NULL);
    return strcmp(client_text(said, "type"), "end") == 0;
}

/* Prints what has come. */
static int console_show(struct console *c, struct err *err) {
    struct ws_event e;
    for (;;) {
        int r = ws_client_next(c->ws, 0, &e, err);
        if (r <= 0)
            return r;
        const char *data = e.data;
        size_t n = e.n;
        c->is_over = e.opcode == WS_CLOSE || (e.opcode == WS_TEXT && console_says_end(&e));
        if (c->is_over)
            return 0;
        if (e.opcode != WS_BINARY)
            continue;
        if (!console_skip_head(c, &data, &n))
            return err_set(err, ERR_INTERNAL, "the serial console did not begin with an offset");
        if (write_all(STDOUT_FILENO, data, n) < 0)
            return err_sys(err, "cannot write the output");
    }
}

/* True once the keys to leave were typed. */
static bool console_is_left(struct console *c, const char *bytes, size_t n) {
    uint64_t now = monotonic_ms();
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != (SESSION_LEAVE_KEY & 0x1f) || now - c->leave_ms > SESSION_LEAVE_MS)
            c->leave_keys = 0;
        if (bytes[i] != (SESSION_LEAVE_KEY & 0x1f))
            continue;
        if (c->leave_keys++ == 0)
            c->leave_ms = now;
        if (c->leave_keys == SESSION_LEAVE_COUNT)
            return true;
    }
    return false;
}

static int console_end_typing(struct console *c, struct err *err) {
    static const char end[] = "{\"type\":\"end\"}";
    c->hears = false;
    return ws_client_send(c->ws, WS_TEXT, end, sizeof(end) - 1, err);
}

static int console_type(struct console *c, struct err *err) {
    char bytes[TYPED];
    ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));
    if (n < 0)
        return errno == EINTR || errno == EAGAIN ? 0 : err_sys(err, "cannot read the input");
    if (n == 0)
        return console_end_typing(c, err);
    c->is_over = c->raw && console_is_left(c, bytes, (size_t)n);
    return c->is_over ? 0 : ws_client_send(c->ws, WS_BINARY, bytes, (size_t)n, err);
}

/* Until the console ends, or the user leaves it. */
static int console_run(struct console *c, struct err *err) {
    int r = c->hears ? 0 : console_end_typing(c, err);
    while (r == 0 && (r = console_show(c, err)) == 0 && !c->is_over) {
        struct pollfd polls[] = {{.fd = c->daemon, .events = POLLIN},
                                 {.fd = c->hears ? STDIN_FILENO : -1, .events = POLLIN}};
        if (poll(polls, 2, -1) < 0 && errno != EINTR)
            r = err_sys(err, "cannot wait for the console");
        else if (polls[1].revents)
            r = console_type(c, err);
    }
    return r;
}

static void console_make_raw(struct console *c) {
    if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &c->saved) < 0)
        return;
    struct termios raw = c->saved;
    cfmakeraw(&raw);
    c->raw = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

static int console_open(struct console *c, struct client *to, const char *machine, uint64_t offset,
                        struct err *err) {
    char target[CLIENT_TARGET_SIZE], from[HEAD_MAX];
    snprintf(from, sizeof(from), "%" PRIu64, offset);
    if (cli_machine_open(to, machine, err) < 0 ||
        client_target(target, err, "/v1/machines/%s/serial?offset=%s", machine, from) < 0)
        return -1;
    c->ws = client_websocket(to, to->http, target, MESSAGE_MAX, err);
    c->daemon = http_client_fd(to->http);
    return c->ws ? 0 : -1;
}

int cmd_serial(int argc, char **argv) {
    struct client to DEFER(client_close) = {0};
    struct console c = {.ws = NULL};
    struct serial_options o = {.log = false};
    char *words[1] = {NULL};
    struct err err;
    int count = options_words(serial_rows, argc, argv, &o, words, 1, &err);
    if (count < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_help("serial");
        return 0;
    }
    if (cli_machine_check(words[0], &err) < 0 ||
        console_open(&c, &to, words[0], o.offset, &err) < 0)
        return cli_fail(&err);
    c.hears = !o.log;
    if (c.hears)
        console_make_raw(&c);
    if (c.raw)
        fprintf(stderr, "carrel: to leave the console, " SESSION_LEAVE_HELP "\r\n");
    int r = console_run(&c, &err);
    if (c.raw)
        tcsetattr(STDIN_FILENO, TCSANOW, &c.saved);
    ws_client_free(c.ws);
    return r < 0 ? cli_fail(&err) : 0;
}
