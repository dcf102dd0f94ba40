/* Once warm, a request and its answer allocate nothing: counted by standing in for malloc. */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/http_server.h"

static unsigned long allocations;

/* The sanitizers and valgrind have a malloc of their own; there is nothing to count there. */
#if UNIT_SANITIZED
enum { CAN_COUNT = 0 };
#else
enum { CAN_COUNT = 1 };
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t each);
void *__libc_realloc(void *p, size_t n);

void *malloc(size_t n) {
    allocations++;
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t each) {
    allocations++;
    return __libc_calloc(n, each);
}
void *realloc(void *p, size_t n) {
    allocations++;
    return __libc_realloc(p, n);
}
#endif

enum { WARM = 100, COUNTED = 1000 };

struct world {
    struct loop *loop;
    int client;
    const char *request;
    unsigned answers;
    unsigned long before;
};

static void collected(struct http_exchange *x, const char *body, size_t n) {
    http_reply(x, 200, HTTP_FIELDS({"Content-Type", "text/plain"}), body, n);
}

static void on_request(struct http_exchange *x, void *arg) {
    (void)arg;
    if (http_text_is(x->head->path, "/echo")) {
        http_collect(x, 65536, collected);
    } else if (http_text_is(x->head->path, "/stream")) {
        http_begin(x, 200, NULL, -1);
        http_write(x, "hello", 5);
        http_end(x);
    } else {
        http_reply(x, 200, HTTP_FIELDS({"Content-Type", "text/plain"}), "hello", 5);
    }
}

static void say(struct world *w) {
    size_t n = strlen(w->request);
    assert_int_equal(send(w->client, w->request, n, 0), n);
}

static void on_answer(void *arg, unsigned events) {
    struct world *w = arg;
    char in[4096];
    (void)events;
    assert_true(recv(w->client, in, sizeof(in), 0) > 0);
    if (++w->answers == WARM)
        w->before = allocations;
    if (w->answers == WARM + COUNTED)
        loop_stop(w->loop);
    else
        say(w);
}

static void count_for(const char *request) {
    static const struct http_server_config config = {.on_request = on_request};
    struct err err;
    struct loop_watch *watch;
    struct sockaddr_storage address = {0};
    socklen_t n = sizeof(address);
    struct world w = {.loop = loop_new(&err), .request = request};
    struct http_server *server = http_server_new(w.loop, &config);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* A name of the kernel's choice, in no directory. */
    assert_int_equal(bind(listener, &(struct sockaddr){.sa_family = AF_UNIX}, 2), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &n), 0);
    assert_int_equal(http_listen_fd(server, listener, &err), 0);
    w.client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(w.client, (struct sockaddr *)&address, n), 0);
    assert_int_equal(loop_watch_new(w.loop, w.client, LOOP_READ, on_answer, &w, &watch, &err), 0);
    say(&w);
    loop_run(w.loop);
    assert_int_equal(allocations - w.before, 0);
    loop_watch_free(watch);
    http_server_free(server);
    loop_free(w.loop);
    close(w.client);
}

static void what_is_counted_is_counted(void **state) {
    unsigned long before = allocations;
    (void)state;
    void *volatile p = malloc(10);
    free(p);
    const char *preload = getenv("LD_PRELOAD");
    if (!CAN_COUNT || (preload && strstr(preload, "vgpreload")))
        skip();
    assert_int_equal(allocations - before, 1);
}

static void a_get_allocates_nothing(void **state) {
    (void)state;
    count_for("GET / HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n");
}

static void a_small_body_allocates_nothing(void **state) {
    (void)state;
    count_for("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
}

static void a_small_stream_allocates_nothing(void **state) {
    (void)state;
    count_for("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
}

UNIT_MAIN(cmocka_unit_test(what_is_counted_is_counted), cmocka_unit_test(a_get_allocates_nothing),
          cmocka_unit_test(a_small_body_allocates_nothing),
          cmocka_unit_test(a_small_stream_allocates_nothing))
