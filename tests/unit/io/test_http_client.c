/* The client against the server, which runs in a thread of its own. */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "io/http_client.h"
#include "io/http_server.h"
#include "io/ws_client.h"
#include "io/ws_server.h"

static struct {
    char dir[32], path[48];
    uint16_t port;
    int stop[2];
    struct loop *loop;
    struct http_server *server;
    pthread_t thread;
} world;

/* The server's side */

static void hello(struct http_exchange *x) {
    http_reply(x, 200, HTTP_FIELDS({"X-Method", x->head->method.n == 4 ? "HEAD" : "GET"}), "hello",
               5);
}

static void reply_same(struct http_exchange *x, const char *bytes, size_t n) {
    http_reply(x, 200, NULL, bytes, n);
}

static void echo(struct http_exchange *x) {
    http_collect(x, 1 << 20, reply_same);
}

static void tiny(struct http_exchange *x) {
    http_collect(x, 10, reply_same);
}

static void big(struct http_exchange *x) {
    static char piece[10000];
    http_begin(x, 200, NULL, -1);
    for (int i = 0; i < 100; i++)
        http_write(x, piece, sizeof(piece));
    http_end(x);
}

static void until_close(struct http_exchange *x) {
    http_begin(x, 200, HTTP_FIELDS({"Connection", "close"}), -1);
    http_write(x, "bye", 3);
    http_end(x);
}

static void cut(struct http_exchange *x) {
    http_begin(x, 200, NULL, 10);
    http_write(x, "abc", 3);
    http_end(x);
}

static void drop(struct http_exchange *x) {
    http_hold(x);
    http_drop(x);
}

static void silent_gone(struct http_exchange *x) {
    http_drop(x);
}

static void silent(struct http_exchange *x) {
    x->on_gone = silent_gone;
    http_hold(x);
}

static void fds(struct http_exchange *x) {
    char text[16] = "";
    ssize_t n = x->nfds ? read(x->fds[0], text, sizeof(text)) : 0;
    int null = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    http_reply_fds(x, 200, NULL, text, (size_t)n, &null, 1);
}

static void said(struct ws *ws, enum ws_opcode kind, const char *data, size_t n) {
    if (n == 4 && memcmp(data, "ping", 4) == 0)
        ws_send(ws, WS_PING, "are you there", 13);
    if (n == 3 && memcmp(data, "bye", 3) == 0)
        ws_close(ws, 4001, "bye yourself");
    else
        ws_send(ws, kind, data, n);
}

static void closed(struct ws *ws, int code) {
    (void)ws;
    (void)code;
}

static void websocket(struct http_exchange *x) {
    static const struct ws_handler handler = {said, NULL, closed, 1 << 20, NULL};
    ws_upgrade(x, &handler, NULL);
}

static const struct {
    const char *path;
    http_exchange_fn *fn;
} routes[] = {
    {"/hello", hello}, {"/echo", echo}, {"/tiny", tiny},     {"/big", big}, {"/close", until_close},
    {"/cut", cut},     {"/drop", drop}, {"/silent", silent}, {"/fds", fds}, {"/ws", websocket},
};

static void on_request(struct http_exchange *x, void *arg) {
    (void)arg;
    for (size_t i = 0; i < sizeof(routes) / sizeof(*routes); i++)
        if (http_text_is(x->head->path, routes[i].path)) {
            routes[i].fn(x);
            return;
        }
    http_reply(x, 404, NULL, NULL, 0);
}

static void on_stop(void *arg, unsigned events) {
    (void)events;
    loop_stop(arg);
}

static void *serve(void *arg) {
    loop_run(world.loop);
    return arg;
}

static int world_open(void **state) {
    static const struct http_server_config config = {.on_request = on_request, .idle_ms = 1000};
    struct loop_watch *watch;
    struct err err = {0};
    (void)state;
    snprintf(world.dir, sizeof(world.dir), "/tmp/hc-XXXXXX");
    if (!mkdtemp(world.dir) || pipe2(world.stop, O_CLOEXEC) < 0)
        return -1;
    snprintf(world.path, sizeof(world.path), "%s/s", world.dir);
    world.loop = loop_new(&err);
    world.server = http_server_new(world.loop, &config);
    if (http_listen_unix(world.server, world.path, 0600, &err) < 0 ||
        http_listen_tcp(world.server, "127.0.0.1", 0, &world.port, &err) < 0 ||
        loop_watch_new(world.loop, world.stop[0], LOOP_READ, on_stop, world.loop, &watch, &err) < 0)
        return fprintf(stderr, "%s\n", err.text), -1;
    return pthread_create(&world.thread, NULL, serve, NULL);
}

static int world_close(void **state) {
    (void)state;
    close(world.stop[1]);
    pthread_join(world.thread, NULL);
    http_server_free(world.server);
    loop_free(world.loop);
    close(world.stop[0]);
    return rmdir(world.dir);
}

/* The client's side */

static struct http_client *connected(void) {
    struct err err = {0};
    struct http_client *c = http_client_unix(world.path, &err);
    if (!c)
        fail_msg("%s", err.text);
    http_client_set_timeout(c, 10000);
    return c;
}

/* Asks and collects; the status, or minus the error's code. */
static int ask(struct http_client *c, const struct http_request *r, struct buf *body) {
    struct err err = {0};
    const struct http_head *h;
    body->len = 0;
    if (http_client_send(c, r, &err) < 0 || http_client_answer(c, &h, &err) < 0)
        return -(int)err.code;
    int status = h->status;
    return http_client_collect(c, body, &err) < 0 ? -(int)err.code : status;
}

static int get(struct http_client *c, const char *target, struct buf *body) {
    return ask(c, &(struct http_request){.method = "GET", .target = target}, body);
}

static void one_connection_serves_many_requests(void **state) {
    struct http_client *c DEFER(http_client_freep) = connected();
    struct buf b DEFER(buf_done) = BUF(4 << 20);
    int fd = http_client_fd(c);
    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(get(c, "/hello", &b), 200);
        assert_string_equal(b.data, "hello");
        assert_int_equal(get(c, "/big", &b), 200);
        assert_int_equal(b.len, 1000000);
        assert_int_equal(get(c, "/none", &b), 404);
        assert_int_equal(ask(c, &(struct http_request){.method = "HEAD", .target = "/hello"}, &b),
                         200);
        assert_int_equal(b.len, 0);
    }
    assert_int_equal(http_client_fd(c), fd);
}

static void over_tcp_as_well(void **state) {
    struct err err;
    struct buf b DEFER(buf_done) = BUF(1 << 20);
    struct http_client *c DEFER(http_client_freep) = http_client_tcp("localhost", world.port, &err);
    (void)state;
    assert_non_null(c);
    assert_int_equal(get(c, "/hello", &b), 200);
    assert_null(http_client_tcp("example.org", 80, &err));
    assert_int_equal(err.code, ERR_INVALID);
    struct http_request r = {.method = "GET", .target = "/fds", .fds = (int[]){0}, .nfds = 1};
    assert_int_equal(ask(c, &r, &b), -ERR_INVALID);
}

static void nobody_there_is_not_found(void **state) {
    struct err err;
    (void)state;
    assert_null(http_client_unix("/tmp/there-is-no-such-socket", &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_null(http_client_tcp("127.0.0.1", 1, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void bodies_go_whole_or_streamed(void **state) {
    struct http_client *c DEFER(http_client_freep) = connected();
    struct buf b DEFER(buf_done) = BUF(1 << 20);
    const struct http_head *h;
    struct err err;
    char *big_body DEFER_FREE = calloc(1, 900000);
    (void)state;
    struct http_request whole = {
        .method = "POST", .target = "/echo", .body = big_body, .n = 900000};
    assert_int_equal(ask(c, &whole, &b), 200);
    assert_int_equal(b.len, 900000);
    struct http_request none = {.method = "POST", .target = "/echo"};
    assert_int_equal(ask(c, &none, &b), 200);
    assert_int_equal(b.len, 0);
    struct http_request streamed = {.method = "PUT", .target = "/echo", .streamed = true};
    assert_int_equal(http_client_send(c, &streamed, &err), 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(http_client_write(c, "0123456789", 10, &err), 0);
    assert_int_equal(http_client_finish(c, &err), 0);
    assert_int_equal(http_client_answer(c, &h, &err), 0);
    assert_int_equal(http_client_collect(c, &b, &err), 0);
    assert_int_equal(b.len, 1000);
}

static void a_refusal_in_the_middle_of_a_body_is_heard(void **state) {
    struct http_client *c DEFER(http_client_freep) = connected();
    struct buf b DEFER(buf_done) = BUF(1 << 20);
    const struct http_head *h;
    struct err err;
    static char piece[100000];
    (void)state;
    struct http_request r = {.method = "POST", .target = "/tiny", .streamed = true};
    assert_int_equal(http_client_send(c, &r, &err), 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(http_client_write(c, piece, sizeof(piece), &err), 0);
    assert_int_equal(http_client_finish(c, &err), 0);
    assert_int_equal(http_client_answer(c, &h, &err), 0);
    assert_int_equal(h->status, 413);
    assert_int_equal(http_client_collect(c, &b, &err), 0);
    assert_int_equal(get(c, "/hello", &b), 200);
}

/* No length was given: only what comes tells. */
static void one_byte_more_than_the_limit_is_refused(void **state) {
    struct http_client *c DEFER(http_client_freep) = connected();
    struct buf b DEFER(buf_done) = BUF(1 << 20);
    const struct http_head *h;
    struct err err;
    (void)state;
    for (size_t n = 10; n <= 11; n++) {
        struct http_request r = {.method = "POST", .target = "/tiny", .streamed = true};
        assert_int_equal(http_client_send(c, &r, &err), 0);
        assert_int_equal(http_client_write(c, "0123456789a", n, &err), 0);
        assert_int_equal(http_client_finish(c, &err), 0);
        assert_int_equal(http_client_answer(c, &h, &err), 0);
        assert_int_equal(h->status, n == 10 ? 200 : 413);
        assert_int_equal(http_client_collect(c, &b, &err), 0);
    }
}

static void a_connection_that_was_closed_is_opened_again(void **state) {
    struct http_client *c DEFER(http_client_freep) = connected();
    struct buf b DEFER(buf_done) = BUF(1 << 20);
    (void)state;
    assert_int_equal(get(c, "/close", &b), 200);
    assert_string_equal(b.data, "bye");
    assert_int_equal(get(c, "/hello", &b), 200);
    usleep(1500000); /* longer than the server keeps an idle one */
    assert_int_equal(get(c, "/hello", &b), 200);
}

static void an_answer_that_does_not_come_is_unknown(void **state) {
    struct http_client *c DEFER(http_client_freep) = connected();
    struct buf b DEFER(buf_done) = BUF(1 << 20);
    (void)state;
    assert_int_equal(get(c, "/drop", &b), -ERR_UNKNOWN);
    assert_int_equal(get(c, "/cut", &b), -ERR_UNKNOWN);
    assert_int_equal(get(c, "/hello", &b), 200);
    http_client_set_timeout(c, 50);
    assert_int_equal(get(c, "/silent", &b), -ERR_TIMEOUT);
}

static void too_long_an_answer_is_a_limit(void **state) {
    struct http_client *c DEFER(http_client_freep) = connected();
    struct buf b DEFER(buf_done) = BUF(1000);
    (void)state;
    assert_int_equal(get(c, "/big", &b), -ERR_LIMIT);
    assert_int_equal(get(c, "/hello", &b), 200);
}

static void an_answer_left_unread_does_not_matter(void **state) {
    struct http_client *c DEFER(http_client_freep) = connected();
    struct buf b DEFER(buf_done) = BUF(1000);
    struct err err;
    const struct http_head *h;
    const char *piece;
    size_t n;
    (void)state;
    struct http_request r = {.method = "GET", .target = "/big"};
    assert_int_equal(http_client_send(c, &r, &err), 0);
    assert_int_equal(http_client_answer(c, &h, &err), 0);
    assert_int_equal(http_client_read(c, &piece, &n, &err), 1);
    assert_int_equal(get(c, "/hello", &b), 200);
    assert_string_equal(b.data, "hello");
}

static void descriptors_go_both_ways(void **state) {
    struct http_client *c DEFER(http_client_freep) = connected();
    struct buf b DEFER(buf_done) = BUF(1000);
    int ends[2], got[HTTP_CLIENT_FDS_MAX];
    char zero[4] = "xxx";
    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "inside", 6), 6);
    struct http_request r = {.method = "GET", .target = "/fds", .fds = ends, .nfds = 1};
    assert_int_equal(ask(c, &r, &b), 200);
    assert_string_equal(b.data, "inside");
    assert_int_equal(http_client_take_fds(c, got), 1);
    assert_int_equal(read(got[0], zero, 4), 4);
    assert_int_equal(zero[0], 0);
    close(got[0]);
    close(ends[0]);
    close(ends[1]);
    /* One that nobody took is closed by the next request. */
    assert_int_equal(get(c, "/fds", &b), 200);
    assert_int_equal(get(c, "/hello", &b), 200);
    assert_int_equal(http_client_take_fds(c, got), 0);
}

static void nothing_can_be_injected_into_a_request(void **state) {
    struct http_client *c DEFER(http_client_freep) = connected();
    struct buf b DEFER(buf_done) = BUF(1000);
    (void)state;
    assert_int_equal(get(c, "/a b", &b), -ERR_INVALID);
    assert_int_equal(get(c, "/ HTTP/1.1\r\nX: y\r\n\r\n", &b), -ERR_INVALID);
    struct http_request r = {
        .method = "GET", .target = "/hello", .fields = HTTP_FIELDS({"X", "y\r\nZ: z"})};
    assert_int_equal(ask(c, &r, &b), -ERR_INVALID);
    assert_int_equal(get(c, "/hello", &b), 200);
}

static void a_websocket_is_a_conversation(void **state) {
    struct http_client *c DEFER(http_client_freep) = connected();
    struct err err = {0};
    struct ws_event e;
    char *big_message DEFER_FREE = calloc(1, 200000);
    struct ws_client *ws DEFER(ws_client_freep) =
        ws_client_open(c, "/ws", NULL, 1 << 20, NULL, &err);
    (void)state;
    assert_non_null(ws);
    assert_int_equal(ws_client_next(ws, 0, &e, &err), 0);
    const size_t sizes[] = {0, 1, 125, 126, 65535, 65536, 200000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        assert_int_equal(ws_client_send(ws, WS_BINARY, big_message, sizes[i], &err), 0);
        assert_int_equal(ws_client_next(ws, -1, &e, &err), 1);
        assert_int_equal(e.opcode, WS_BINARY);
        assert_int_equal(e.n, sizes[i]);
        assert_memory_equal(e.data, big_message, e.n);
    }
    assert_int_equal(ws_client_send(ws, WS_TEXT, "ping", 4, &err), 0);
    assert_int_equal(ws_client_next(ws, 5000, &e, &err), 1);
    assert_int_equal(e.opcode, WS_TEXT);
    assert_int_equal(ws_client_send(ws, WS_TEXT, "bye", 3, &err), 0);
    assert_int_equal(ws_client_next(ws, 5000, &e, &err), 1);
    assert_int_equal(e.opcode, WS_CLOSE);
    assert_int_equal(e.code, 4001);
    assert_int_equal(e.n, 12);
    assert_memory_equal(e.data, "bye yourself", 12);
    assert_int_equal(ws_client_next(ws, 5000, &e, &err), -1);
    assert_int_equal(err.code, ERR_GONE);
    assert_int_equal(ws_client_send(ws, WS_TEXT, "x", 1, &err), -1);
}

static void a_client_closes_a_websocket(void **state) {
    struct http_client *c DEFER(http_client_freep) = connected();
    struct err err = {0};
    struct ws_event e;
    (void)state;
    int status = 0;
    assert_null(ws_client_open(c, "/none", NULL, 1 << 20, &status, &err));
    assert_int_equal(status, 404);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_null(ws_client_open(c, "/hello", NULL, 1 << 20, NULL, &err));
    struct ws_client *ws DEFER(ws_client_freep) =
        ws_client_open(c, "/ws", NULL, 1 << 20, NULL, &err);
    assert_non_null(ws);
    assert_int_equal(ws_client_close(ws, WS_NORMAL, "done", &err), 0);
    assert_int_equal(ws_client_next(ws, 5000, &e, &err), 1);
    assert_int_equal(e.opcode, WS_CLOSE);
    assert_int_equal(e.code, WS_NORMAL);
}

#define CASE(f) cmocka_unit_test(f)
int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(one_connection_serves_many_requests),
        CASE(over_tcp_as_well),
        CASE(nobody_there_is_not_found),
        CASE(bodies_go_whole_or_streamed),
        CASE(a_refusal_in_the_middle_of_a_body_is_heard),
        CASE(one_byte_more_than_the_limit_is_refused),
        CASE(a_connection_that_was_closed_is_opened_again),
        CASE(an_answer_that_does_not_come_is_unknown),
        CASE(too_long_an_answer_is_a_limit),
        CASE(an_answer_left_unread_does_not_matter),
        CASE(descriptors_go_both_ways),
        CASE(nothing_can_be_injected_into_a_request),
        CASE(a_websocket_is_a_conversation),
        CASE(a_client_closes_a_websocket),
    };
    return cmocka_run_group_tests(tests, world_open, world_close);
}
