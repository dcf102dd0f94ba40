#include "tests/unit/unit.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gate/gate.h"
#include "io/loop.h"

enum { STEERED, PROXY, DNS_UDP, DNS_TCP, DOORS, COUNTERS = 2 };

struct world {
    struct loop *loop;
    struct loop_timer *timer;
    struct gate *gate;
    struct sockaddr_in doors[DOORS];
};

static void ignore_name(void *arg, const char *machine, uint32_t number, const char *name) {
    (void)arg, (void)machine, (void)number, (void)name;
}

static bool ignore_crossing(void *arg, const char *machine, const struct gate_crossing *c) {
    (void)arg, (void)machine, (void)c;
    return true;
}

static const struct gate_hooks hooks = {.crossed = ignore_crossing, .named = ignore_name};

static int door(int kind, struct sockaddr_in *ret) {
    socklen_t size = sizeof(*ret);
    int fd = socket(AF_INET, kind | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    *ret = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(bind(fd, (struct sockaddr *)ret, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)ret, &size), 0);
    if (kind == SOCK_STREAM)
        assert_int_equal(listen(fd, 8), 0);
    return fd;
}

static void stop(void *arg) {
    struct world *w = arg;
    loop_stop(w->loop);
}

static void turn(struct world *w, uint64_t ms) {
    loop_timer_start(w->timer, ms, 0);
    loop_run(w->loop);
}

static int world_open(void **state) {
    static struct world w;
    struct err err;
    int fds[DOORS + COUNTERS] = {-1, -1, -1, -1, -1, -1};
    w = (struct world){.loop = loop_new(&err)};
    *state = &w;
    w.timer = loop_timer_new(w.loop, stop, &w);
    w.gate = gate_new(&(struct gate_options){.loop = w.loop, .hooks = &hooks});
    for (int i = 0; i < DOORS; i++)
        fds[i] = door(i == DNS_UDP ? SOCK_DGRAM : SOCK_STREAM, &w.doors[i]);
    return gate_listen(gate_add(w.gate, "m-aaaaaaaaaaaa"), fds, &err);
}

static int world_close(void **state) {
    struct world *w = *state;
    gate_free(w->gate);
    loop_timer_free(w->timer);
    loop_free(w->loop);
    return 0;
}

/* The kernel's, which can be made to have no descriptor left. */
static bool none_left;
static unsigned refused;

int accept4(int fd, struct sockaddr *restrict from, socklen_t *restrict size, int flags) {
    if (!none_left)
        return (int)syscall(SYS_accept4, fd, from, size, flags);
    refused++;
    errno = EMFILE;
    return -1;
}

/* A door that is told of again and again would take the whole cpu. */
static void a_lookup_that_cannot_be_taken_waits_quietly(void **state) {
    static const char query[] = "\0\x19\x12\x34\1\0\0\1\0\0\0\0\0\0\2ok\4test\0\0\1\0\1";
    struct world *w = *state;
    char reply[128];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&w->doors[DNS_TCP], sizeof(*w->doors)), 0);
    assert_int_equal(send(fd, query, sizeof(query) - 1, 0), sizeof(query) - 1);
    none_left = true;
    turn(w, 250);
    none_left = false;
    assert_in_range(refused, 1, 4);
    ssize_t n = -1;
    for (int i = 0; i < 200 && n < 0; i++) {
        turn(w, 10);
        n = recv(fd, reply, sizeof(reply), MSG_DONTWAIT);
    }
    assert_true(n > 6);
    assert_memory_equal(reply + 2, "\x12\x34\x81\x80", 4);
    close(fd);
}

UNIT_MAIN(cmocka_unit_test_setup_teardown(a_lookup_that_cannot_be_taken_waits_quietly, world_open,
                                          world_close))
