#include "tests/unit/unit.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fdio.h"
#include "base/wire/port.h"
#include "io/guest_link.h"

/* The guest is played with the codec of the port. */
struct serial_pair {
    struct guest_link *link;
    int peer;
    struct port port;
    uint8_t wire[8192];
    uint8_t packet[PORT_PACKET_MAX];
};

static int open_pair(void **state) {
    static struct serial_pair p;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return -1;
    p.link = guest_link_adopt_port(ends[0]);
    p.peer = ends[1];
    port_init(&p.port, false, p.wire, sizeof(p.wire), p.packet);
    *state = &p;
    return 0;
}

static int close_pair(void **state) {
    struct serial_pair *p = *state;
    guest_link_free(p->link);
    close(p->peer);
    return 0;
}

/* The guest sends what it owes and the frames. */
static void say_bytes(struct serial_pair *p, const uint8_t *frames, size_t n) {
    uint8_t out[8192];
    size_t bytes;
    while ((bytes = port_send(&p->port, &frames, &n, out, sizeof(out))) > 0)
        assert_int_equal(send(p->peer, out, bytes, 0), bytes);
    assert_int_equal(n, 0);
}

static void say(struct serial_pair *p, struct frame_head head, const void *msg) {
    uint8_t frame[4096];
    size_t n = msg_encode(frame, sizeof(frame), &head, msg);
    assert_true(n > 0);
    say_bytes(p, frame, n);
}

static void say_hello(struct serial_pair *p) {
    struct msg_hello hello = {MSG_VERSION, MSG_FEATURE_LOG_READ, 77};
    say(p, (struct frame_head){.type = MSG_HELLO}, &hello);
}

/* The next thing that the guest hears; it waits for bytes. */
static enum port_got hear(struct serial_pair *p, struct frame *ret) {
    enum port_got got;
    while ((got = port_next(&p->port, ret)) == PORT_MORE) {
        uint8_t *to;
        size_t room = port_space(&p->port, &to);
        ssize_t n = recv(p->peer, to, room, MSG_DONTWAIT);
        if (n <= 0)
            return PORT_MORE;
        port_fed(&p->port, (size_t)n);
    }
    return got;
}

static void send_ping(struct serial_pair *p, uint32_t tag) {
    struct err err;
    struct frame_head head = {.type = MSG_PING, .tag = tag};
    assert_int_equal(guest_link_send(p->link, &head, NULL, NULL, 0, &err), 0);
}

static void hear_greeting(struct serial_pair *p) {
    struct frame f;
    send_ping(p, 5);
    assert_int_equal(hear(p, &f), PORT_BEGIN);
    assert_int_equal(hear(p, &f), PORT_FRAME);
    assert_int_equal(f.head.type, MSG_HELLO);
    assert_int_equal(hear(p, &f), PORT_FRAME);
    assert_int_equal(f.head.type, MSG_PING);
}

static void expect_reply(struct serial_pair *p, uint32_t tag) {
    struct err err;
    struct frame f;
    assert_int_equal(guest_link_wait(p->link, -1, &f, &err), 1);
    assert_int_equal(f.head.type, MSG_OK);
    assert_int_equal(f.head.tag, tag);
}

static void mark_hello_and_first_request_travel_together(void **state) {
    struct serial_pair *p = *state;
    hear_greeting(p);
    say_hello(p);
    say(p, (struct frame_head){.type = MSG_OK, .tag = 5}, &(struct msg_ok){1});
    expect_reply(p, 5);
    assert_int_equal(guest_link_incarnation(p->link), 77);
    assert_int_equal(guest_link_backlog(p->link), 0);
    assert_int_equal(guest_link_events(p->link), POLLIN);
}

static void bytes_of_the_connection_before_are_discarded(void **state) {
    struct serial_pair *p = *state;
    static const char junk[] = "half a frame of another host \xc0G\1\xdb\xc0";
    struct err err;
    struct frame f;
    assert_int_equal(send(p->peer, junk, sizeof(junk), 0), sizeof(junk));
    assert_int_equal(guest_link_next(p->link, &f, &err), 0);
    hear_greeting(p);
    say_hello(p);
    say(p, (struct frame_head){.type = MSG_OK, .tag = 5}, &(struct msg_ok){1});
    expect_reply(p, 5);
}

static void guest_that_started_again_ends_link_as_gone(void **state) {
    struct serial_pair *p = *state;
    struct err err;
    struct frame f;
    hear_greeting(p);
    say_hello(p);
    assert_int_equal(guest_link_next(p->link, &f, &err), 0);
    port_init(&p->port, false, p->wire, sizeof(p->wire), p->packet);
    say_bytes(p, NULL, 0);
    assert_int_equal(guest_link_next(p->link, &f, &err), -1);
    assert_int_equal(err.code, ERR_GONE);
}

static void descriptors_are_refused_and_link_stays_usable(void **state) {
    struct serial_pair *p = *state;
    struct err err;
    struct frame_head head = {.type = MSG_EXEC, .id = 1, .tag = 6};
    struct msg_exec exec = {.argv = {.v = (const char *const[]){"true", NULL}},
                            .env = {.v = (const char *const[]){NULL}}};
    int fd = 0;
    assert_int_equal(guest_link_send(p->link, &head, &exec, &fd, 1, &err), -1);
    assert_int_equal(err.code, ERR_UNSUPPORTED);
    hear_greeting(p);
}

/* More than the socket takes: the link keeps the rest, and sends it when there is room. */
static void frames_beyond_socket_buffer_arrive_whole(void **state) {
    struct serial_pair *p = *state;
    static uint8_t bytes[MSG_CHUNK_MAX];
    struct err err;
    struct frame f;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = i % 3 ? PORT_END : (uint8_t)i;
    enum { FRAMES = 40 };
    for (uint32_t i = 0; i < FRAMES; i++)
        assert_int_equal(guest_link_stdin(p->link, 1, (uint64_t)i * sizeof(bytes), bytes,
                                          sizeof(bytes), false, &err),
                         0);
    assert_true(guest_link_backlog(p->link) > 0);
    assert_true(guest_link_events(p->link) & POLLOUT);
    uint32_t heard = 0;
    for (unsigned turns = 0; heard < FRAMES && turns < 100000; turns++) {
        enum port_got got = hear(p, &f);
        assert_int_not_equal(got, PORT_LOST);
        if (got == PORT_MORE)
            assert_int_equal(guest_link_flush(p->link, &err), 0);
        if (got != PORT_FRAME || f.head.type != MSG_STDIN)
            continue;
        struct msg_data data;
        assert_int_equal(msg_get_input(&f, &data), 0);
        assert_int_equal(data.offset, heard++ * sizeof(bytes));
        assert_memory_equal(data.data.p, bytes, sizeof(bytes));
    }
    assert_int_equal(heard, FRAMES);
    assert_int_equal(guest_link_backlog(p->link), 0);
}

UNIT_MAIN(cmocka_unit_test_setup_teardown(mark_hello_and_first_request_travel_together, open_pair,
                                          close_pair),
          cmocka_unit_test_setup_teardown(bytes_of_the_connection_before_are_discarded, open_pair,
                                          close_pair),
          cmocka_unit_test_setup_teardown(guest_that_started_again_ends_link_as_gone, open_pair,
                                          close_pair),
          cmocka_unit_test_setup_teardown(descriptors_are_refused_and_link_stays_usable, open_pair,
                                          close_pair),
          cmocka_unit_test_setup_teardown(frames_beyond_socket_buffer_arrive_whole, open_pair,
                                          close_pair))
