#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/defer.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/forward/serve.h"
#include "io/ws_client.h"

enum { PIECE = 32 << 10, MESSAGE_MAX = 64 << 10 };

/*
 * A connection: the descriptors of a program of this host, and a WebSocket to the daemon
 * (api/forward.c). Frames to the daemon are written here and not by ws_client_send(), which would
 * block while the daemon waits for us to read.
 */
struct served {
    struct forward_ends ends;
    int daemon;
    struct ws_client *ws;
    char out[WS_HEAD_MAX + PIECE]; /* a frame for the daemon */
    size_t out_at, out_n;
    bool sent_end;      /* the program has ended its bytes, and the daemon was told */
    bool taken;         /* ... and the machine has all of them */
    struct ws_event in; /* a message of the daemon; in.n bytes are left for the program */
    bool received_end;  /* the machine has ended its bytes, and the program was told */
};

static int put_frame(struct served *s, enum ws_opcode kind, const char *data, size_t n,
                     struct err *err) {
    uint8_t mask[4], head[WS_HEAD_MAX];
    if (getrandom(mask, sizeof(mask), 0) != sizeof(mask))
        return err_sys(err, "cannot read random bytes");
    size_t at = ws_head(head, kind, true, n, mask);
    memcpy(s->out, head, at);
    memcpy(s->out + at, data, n);
    ws_mask(s->out + at, n, mask, 0);
    s->out_at = 0;
    s->out_n = at + n;
    return 0;
}

/* Reads bytes of the program into the next frame. False: the connection broke. */
static bool read_program(struct served *s, struct err *err) {
    static const char end[] = "{\"type\":\"end\"}";
    char bytes[PIECE];
    ssize_t n = read(s->ends.in, bytes, sizeof(bytes));
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    s->sent_end = n == 0;
    return s->sent_end ? put_frame(s, WS_TEXT, end, sizeof(end) - 1, err) == 0
                       : put_frame(s, WS_BINARY, bytes, (size_t)n, err) == 0;
}

/* Takes the result of a write that does not block. False: the connection broke. */
static bool was_sent(ssize_t sent, size_t *ret_sent) {
    *ret_sent = sent < 0 ? 0 : (size_t)sent;
    return sent >= 0 || errno == EAGAIN || errno == EINTR;
}

/* Ends the bytes for the program. */
static bool end_program(struct served *s) {
    if (shutdown(s->ends.out, SHUT_WR) == 0)
        return true;
    return errno == ENOTSOCK && close(TAKE_FD(s->ends.out)) == 0;
}

/* Takes a message of the daemon. False: the connection broke. */
static bool take_message(struct served *s) {
    if (s->in.opcode == WS_BINARY)
        return true;
    json_t *said DEFER(json_decrefp) =
        s->in.opcode == WS_TEXT ? json_loadb(s->in.data, s->in.n, 0, NULL) : NULL;
    s->in.n = 0;
    if (strcmp(client_text(said, "type"), "taken") == 0) {
        s->taken = true;
        return true;
    }
    if (strcmp(client_text(said, "type"), "end") != 0)
        return false;
    s->received_end = true;
    return end_program(s);
}

/* Passes on the messages that have come. False: the connection broke. */
static bool read_daemon(struct served *s, struct err *err) {
    for (;;) {
        struct ws_event message; /* a part of one, as long as more of it is to come */
        size_t sent;
        while (s->in.n) {
            if (!was_sent(write(s->ends.out, s->in.data, s->in.n), &sent))
                return false;
            if (!sent)
                return true;
            s->in.data += sent;
            s->in.n -= sent;
        }
        int r = ws_client_next(s->ws, 0, &message, err);
        if (r <= 0)
            return r == 0;
        s->in = message;
        if (!take_message(s))
            return false;
    }
}

/* Waits until something can be done, and does it. False: the connection broke. */
static bool serve_once(struct served *s, struct err *err) {
    bool holds = s->in.n;
    struct pollfd polls[] = {
        {.fd = s->ends.in, .events = (short)(s->sent_end || s->out_n ? 0 : POLLIN)},
        {.fd = s->ends.out, .events = (short)(holds ? POLLOUT : 0)},
        {.fd = s->daemon, .events = (short)((holds ? 0 : POLLIN) | (s->out_n ? POLLOUT : 0))},
    };
    for (int i = 0; i < 3; i++)
        if (!polls[i].events)
            polls[i].fd = -1; /* the end of a connection that is not read now would be reported */
    if (poll(polls, 3, -1) < 0)
        return errno == EINTR;
    size_t sent = 0;
    if (!s->out_n && !s->sent_end && polls[0].revents && !read_program(s, err))
        return false;
    if (s->out_n &&
        !was_sent(send(s->daemon, s->out + s->out_at, s->out_n, MSG_DONTWAIT | MSG_NOSIGNAL),
                  &sent))
        return false;
    s->out_at += sent;
    s->out_n -= sent;
    return read_daemon(s, err);
}

/* Copies both ways until both sides have ended. False: the connection broke. */
static bool serve_all(struct served *s) {
    struct err err;
    bool goes_on = read_daemon(s, &err);
    while (goes_on && !(s->taken && s->received_end))
        goes_on = serve_once(s, &err);
    if (goes_on)
        ws_client_close(s->ws, WS_NORMAL, "", NULL);
    return goes_on;
}

/* Asks the daemon for the connection. */
static int forward_open(struct served *s, struct client *c, const char *machine, uint16_t port,
                        struct err *err) {
    char target[CLIENT_TARGET_SIZE], number[8];
    snprintf(number, sizeof(number), "%u", port);
    if (client_target(target, err, "/v1/machines/%s/forward/%s", machine, number) < 0)
        return -1;
    s->ws = client_websocket(c, c->http, target, MESSAGE_MAX, err);
    s->daemon = http_client_fd(c->http);
    return s->ws ? 0 : -1;
}

/* Until all bytes were copied, the end of this process resets the connection: the client must not
 * take a part of the bytes for all of them. A pipe cannot be reset. */
static void close_resets(int sock, bool resets) {
    setsockopt(sock, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = resets},
               sizeof(struct linger));
}

int forward_serve(struct forward_ends ends, const char *machine, uint16_t port) {
    static struct served s;
    struct client c DEFER(client_close) = {0};
    struct err err;
    close_resets(ends.in, true);
    signal(SIGPIPE, SIG_IGN);
    if (fcntl(ends.in, F_SETFL, O_NONBLOCK) < 0 || fcntl(ends.out, F_SETFL, O_NONBLOCK) < 0) {
        err_sys(&err, "cannot prepare a connection");
        return cli_fail(&err);
    }
    if (client_open(&c, CLIENT_START, NULL, &err) < 0)
        return cli_fail(&err);
    s.ends = ends;
    if (forward_open(&s, &c, machine, port, &err) < 0) {
        cli_fail(&err);
        return err.code == ERR_NOT_FOUND || err.code == ERR_GONE ? FORWARD_MACHINE_ENDED
                                                                 : CLI_FAILED;
    }
    bool whole = serve_all(&s);
    close_resets(ends.in, !whole);
    ws_client_free(s.ws);
    return whole ? 0 : 1;
}
