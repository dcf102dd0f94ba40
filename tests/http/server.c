/*
 * A server for tests/http: one route for each thing a handler can do.
 *
 * http-test-server [--unix PATH] [--head-ms N] ... prints its TCP port and serves until its
 * standard input ends.
 */
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "io/http_server.h"
#include "io/http_uri.h"
#include "io/sse.h"
#include "io/ws_server.h"

static struct http_server *server;
static unsigned gone_count, held_count;
static struct http_exchange *held;

static uint64_t number(struct http_exchange *x, const char *key, uint64_t otherwise) {
    char text[32];
    size_t n;
    if (http_query_get(x->head->query, key, text, sizeof(text), &n) != 1)
        return otherwise;
    return strtoull(text, NULL, 10);
}

static void *user_new(struct http_exchange *x, size_t size) {
    x->user = calloc(1, size);
    if (!x->user)
        abort();
    return x->user;
}

static void reply_text(struct http_exchange *x, int status, const char *text) {
    http_reply(x, status, HTTP_FIELDS({"Content-Type", "text/plain"}), text, strlen(text));
}

static void count_gone(struct http_exchange *x) {
    (void)x;
    gone_count++;
}

static void hello(struct http_exchange *x) {
    reply_text(x, 200, "hello\n");
}

static void peer(struct http_exchange *x) {
    char text[128];
    snprintf(text, sizeof(text), "%d %d %d %s", x->peer->local, (int)x->peer->uid,
             (int)x->peer->pid, x->peer->text);
    reply_text(x, 200, text);
}

static void stats(struct http_exchange *x) {
    struct http_server_stats s = http_server_stats(server);
    char text[160];
    snprintf(text, sizeof(text),
             "{\"gone\":%u,\"held\":%u,\"connections\":%u,\"requests\":%u,\"refused\":%llu}",
             gone_count, held_count, s.connections_now, s.requests_now,
             (unsigned long long)s.refused);
    reply_text(x, 200, text);
}

/* Whole bodies */

static void echo_whole(struct http_exchange *x, const char *bytes, size_t n) {
    http_reply(x, 200, NULL, bytes, n);
}

static void count_and_drop(struct http_exchange *x) {
    gone_count++;
    http_drop(x);
}

static void echo(struct http_exchange *x) {
    x->on_gone = number(x, "drop", 0) ? count_and_drop : count_gone;
    http_collect(x, number(x, "max", 1 << 20), echo_whole);
}

/* Streamed bodies */

struct counting {
    uint64_t bytes, pieces;
    struct loop_timer *timer;
};

static void counting_free(struct http_exchange *x) {
    struct counting *c = x->user;
    loop_timer_free(c->timer);
    free(c);
}

static void count_failed(struct http_exchange *x) {
    gone_count++;
    counting_free(x);
    http_drop(x);
}

static void resume_count(void *arg) {
    http_resume(arg);
}

static void count_piece(struct http_exchange *x, const char *bytes, size_t n) {
    struct counting *c = x->user;
    char text[64];
    (void)bytes;
    c->bytes += n;
    c->pieces++;
    if (n) {
        if (c->timer) {
            http_pause(x);
            loop_timer_start(c->timer, 1, 0);
        }
        return;
    }
    snprintf(text, sizeof(text), "%llu", (unsigned long long)c->bytes);
    counting_free(x);
    reply_text(x, 200, text);
}

static void count(struct http_exchange *x) {
    struct counting *c = user_new(x, sizeof(struct counting));
    if (number(x, "pause", 0))
        c->timer = loop_timer_new(http_loop(x), resume_count, x);
    x->on_gone = count_failed;
    http_receive(x, number(x, "max", UINT64_MAX), count_piece);
}

/* Both ways at once, no faster than the slower side. */
static void pipe_drained(struct http_exchange *x) {
    http_resume(x);
}

static void pipe_piece(struct http_exchange *x, const char *bytes, size_t n) {
    if (n == 0)
        http_end(x);
    else if (!http_write(x, bytes, n))
        http_pause(x);
}

static void pipe_through(struct http_exchange *x) {
    x->on_drain = pipe_drained;
    x->on_gone = count_and_drop;
    http_receive(x, UINT64_MAX, pipe_piece);
    http_begin(x, 200, NULL, -1);
}

/* Long answers */

struct pouring {
    uint64_t left;
    size_t most; /* that ever waited */
};

static void pour(struct http_exchange *x) {
    static char piece[32 << 10];
    struct pouring *p = x->user;
    while (p->left) {
        size_t n = p->left < sizeof(piece) ? (size_t)p->left : sizeof(piece);
        p->left -= n;
        bool more = http_write(x, piece, n);
        p->most = http_pending(x) > p->most ? http_pending(x) : p->most;
        if (!more && p->left)
            return;
    }
    if (p->most > 512 << 10)
        abort();
    free(p);
    http_end(x);
}

static void pour_gone(struct http_exchange *x) {
    gone_count++;
    free(x->user);
    http_drop(x);
}

static void pour_out(struct http_exchange *x) {
    struct pouring *p = user_new(x, sizeof(struct pouring));
    p->left = number(x, "n", 1000);
    x->on_drain = pour;
    x->on_gone = pour_gone;
    http_begin(x, 200, NULL, number(x, "sized", 0) ? (int64_t)p->left : -1);
    pour(x);
}

static void whole(struct http_exchange *x) {
    static char bytes[4 << 20];
    uint64_t n = number(x, "n", 1);
    http_reply(x, 200, NULL, bytes, n < sizeof(bytes) ? n : sizeof(bytes));
}

static void cut_short(struct http_exchange *x) {
    http_begin(x, 200, NULL, 10);
    http_write(x, "abc", 3);
    http_end(x);
}

static void dropped(struct http_exchange *x) {
    http_hold(x);
    if (number(x, "begun", 0)) {
        http_begin(x, 200, NULL, -1);
        http_write(x, "abc", 3);
    }
    http_drop(x);
}

static void small_pieces(struct http_exchange *x) {
    http_begin(x, 200, HTTP_FIELDS({"Content-Type", "text/plain"}), -1);
    for (int i = 0; i < 3; i++)
        http_write(x, "abc", 3);
    http_end(x);
}

/* Later */

struct later {
    struct http_exchange *x;
    struct loop_timer *timer;
};

static void reply_later(void *arg) {
    struct later *l = arg;
    loop_timer_free(l->timer);
    reply_text(l->x, 200, "later\n");
    free(l);
}

static void later(struct http_exchange *x) {
    struct later *l = user_new(x, sizeof(struct later));
    l->x = x;
    l->timer = loop_timer_new(http_loop(x), reply_later, l);
    x->on_gone = count_gone;
    http_hold(x);
    loop_timer_start(l->timer, number(x, "ms", 50), 0);
}

static void job_run(void *arg) {
    (void)arg;
    usleep(5000);
}

static void job_done(void *arg) {
    reply_text(arg, 200, "job\n");
}

static void job(struct http_exchange *x) {
    http_hold(x);
    loop_work(http_loop(x), job_run, job_done, x);
}

static void hold_gone(struct http_exchange *x) {
    gone_count++;
    held_count--;
    http_drop(x);
}

static void hold(struct http_exchange *x) {
    held_count++;
    x->on_gone = hold_gone;
    http_hold(x);
}

/* One that is kept until somebody asks for it, whether its peer is there or not. */
static void keep(struct http_exchange *x) {
    x->on_gone = count_gone;
    http_hold(x);
    held = x;
}

static void release(struct http_exchange *x) {
    char text[32];
    if (held) {
        snprintf(text, sizeof(text), "gone=%d", http_is_gone(held));
        reply_text(held, 200, "released\n");
    }
    held = NULL;
    reply_text(x, 200, text);
}

/* Mistakes of a handler */

static void forgets(struct http_exchange *x) {
    (void)x;
}

static void bad_field(struct http_exchange *x) {
    http_reply(x, 200, HTTP_FIELDS({"X", "a\r\nY: b"}), "x", 1);
}

static void empty(struct http_exchange *x) {
    http_reply(x, (int)number(x, "status", 204), NULL, NULL, 0);
}

/* Descriptors */

static void read_fds(struct http_exchange *x) {
    struct buf all DEFER(buf_done) = BUF(64 << 10);
    for (size_t i = 0; i < x->nfds; i++) {
        char piece[1024];
        fcntl(x->fds[i], F_SETFL, O_NONBLOCK);
        ssize_t n = read(x->fds[i], piece, sizeof(piece));
        if (n > 0 && !buf_add(&all, piece, (size_t)n))
            break;
    }
    http_reply(x, 200, NULL, all.data, all.len);
}

static void read_fds_after(struct http_exchange *x, const char *bytes, size_t n) {
    (void)bytes;
    (void)n;
    read_fds(x);
}

static void take_fds(struct http_exchange *x) {
    http_collect(x, 1 << 20, read_fds_after);
}

static void give_fds(struct http_exchange *x) {
    int ends[2][2];
    for (int i = 0; i < 2; i++) {
        char text[2] = {(char)('a' + i), '\n'};
        if (pipe2(ends[i], O_CLOEXEC) < 0 || write(ends[i][1], text, 2) != 2)
            abort();
        close(ends[i][1]);
    }
    http_reply_fds(x, 200, NULL, "two", 3, (int[]){ends[0][0], ends[1][0]}, 2);
}

/* Events and messages */

static void events(struct http_exchange *x) {
    struct buf b DEFER(buf_done) = BUF(4096);
    const char *data = "one\r\ntwo\n\nfour";
    if (!sse_put_comment(&b, "beat") ||
        !sse_put(&b, &(struct sse_event){"7", "note", data, strlen(data), 500}))
        abort();
    http_begin(x, 200, HTTP_FIELDS({"Content-Type", "text/event-stream"}), -1);
    http_write(x, b.data, b.len);
    http_end(x);
}

/* Echoes; a text "close" closes, a text "flood" sends until told to stop, then says how much. */
static void ws_flood(struct ws *ws) {
    static const char piece[4096];
    unsigned *sent = ws_user(ws);
    bool room = true;
    for (; room && *sent < 4096; (*sent)++)
        room = ws_send(ws, WS_BINARY, piece, sizeof(piece));
    if (*sent == 4096) {
        ws_send(ws, WS_TEXT, "done", 4);
        *sent = UINT32_MAX;
    }
}

static void ws_said(struct ws *ws, enum ws_opcode kind, const char *data, size_t n) {
    if (n == 5 && memcmp(data, "close", 5) == 0) {
        ws_close(ws, 4000, "as you say");
    } else if (n == 5 && memcmp(data, "flood", 5) == 0) {
        *(unsigned *)ws_user(ws) = 0;
        ws_flood(ws);
    } else {
        ws_send(ws, kind, data, n);
    }
}

static void ws_more(struct ws *ws) {
    if (*(unsigned *)ws_user(ws) != UINT32_MAX)
        ws_flood(ws);
}

static void ws_over(struct ws *ws, int code) {
    (void)code;
    gone_count++;
    free(ws_user(ws));
}

static const struct ws_handler ws_echo = {ws_said, ws_more, ws_over, 1 << 20, "echo"};

static void websocket(struct http_exchange *x) {
    unsigned *sent = calloc(1, sizeof(*sent));
    if (!sent)
        abort();
    *sent = UINT32_MAX;
    if (!ws_upgrade(x, &ws_echo, sent))
        free(sent);
}

static const struct {
    const char *path;
    http_exchange_fn *fn;
} routes[] = {
    {"/hello", hello},     {"/peer", peer},           {"/stats", stats},
    {"/echo", echo},       {"/count", count},         {"/pipe", pipe_through},
    {"/pour", pour_out},   {"/short", cut_short},     {"/whole", whole},
    {"/dropped", dropped}, {"/pieces", small_pieces}, {"/later", later},
    {"/job", job},         {"/hold", hold},           {"/keep", keep},
    {"/release", release}, {"/forgets", forgets},     {"/bad-field", bad_field},
    {"/empty", empty},     {"/fds", read_fds},        {"/fds-body", take_fds},
    {"/give", give_fds},   {"/events", events},       {"/ws", websocket},
};

static void on_request(struct http_exchange *x, void *arg) {
    (void)arg;
    for (size_t i = 0; i < sizeof(routes) / sizeof(*routes); i++)
        if (http_text_is(x->head->path, routes[i].path)) {
            routes[i].fn(x);
            return;
        }
    reply_text(x, 404, "no such route\n");
}

static void on_stdin(void *arg, unsigned events_) {
    char c;
    (void)events_;
    if (read(STDIN_FILENO, &c, 1) <= 0)
        loop_stop(arg);
    else
        http_server_stop(server);
}

enum { OPT_UNIX = 256, OPT_NUMBER };

int main(int argc, char **argv) {
    static struct http_server_config config = {.on_request = on_request};
    static const struct {
        const char *name;
        unsigned *to;
    } numbers[] = {
        {"head-ms", &config.head_ms},
        {"body-ms", &config.body_ms},
        {"idle-ms", &config.idle_ms},
        {"write-ms", &config.write_ms},
        {"connections", &config.connections_max},
        {"requests", &config.requests_max},
    };
    struct option options[8] = {{"unix", required_argument, NULL, OPT_UNIX}};
    const char *path = NULL;
    struct err err;
    for (size_t i = 0; i < 6; i++)
        options[i + 1] =
            (struct option){numbers[i].name, required_argument, NULL, OPT_NUMBER + (int)i};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == OPT_UNIX)
            path = optarg;
        else if (c >= OPT_NUMBER)
            *numbers[c - OPT_NUMBER].to = (unsigned)strtoul(optarg, NULL, 10);
        else
            return 2;
    }

    struct loop *loop DEFER(loop_freep) = loop_new(&err);
    uint16_t port;
    struct loop_watch *input;
    server = http_server_new(loop, &config);
    if (http_listen_tcp(server, "127.0.0.1", 0, &port, &err) < 0 ||
        (path && http_listen_unix(server, path, 0600, &err) < 0) ||
        loop_watch_new(loop, STDIN_FILENO, LOOP_READ, on_stdin, loop, &input, &err) < 0)
        return fprintf(stderr, "%s\n", err.text), 1;
    printf("%u\n", port);
    fflush(stdout);
    loop_run(loop);
    loop_watch_free(input);
    http_server_free(server);
    return 0;
}
