#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fdio.h"
#include "io/guest_link.h"

/* The peer is played by hand: what it says is put into the socket before the link looks. */
struct pair {
    struct guest_link *link;
    int peer;
};

static int pair_open(void **state) {
    static struct pair p;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return -1;
    p = (struct pair){guest_link_adopt(ends[0]), ends[1]};
    *state = &p;
    return 0;
}

static int pair_close(void **state) {
    struct pair *p = *state;
    guest_link_free(p->link);
    if (p->peer >= 0)
        close(p->peer);
    return 0;
}

static void say(struct pair *p, struct frame_head head, const void *msg) {
    uint8_t wire[4096];
    size_t n = msg_encode(wire, sizeof(wire), &head, msg);
    assert_true(n > 0);
    assert_int_equal(send(p->peer, wire, n, 0), n);
}

static void say_hello(struct pair *p) {
    struct msg_hello hello = {MSG_VERSION, MSG_FEATURE_TREE, 77};
    say(p, (struct frame_head){.type = MSG_HELLO}, &hello);
}

/* Everything the link has sent so far, frame by frame. */
static struct frame_decoder heard(struct pair *p, uint8_t *buf, size_t cap) {
    struct frame_decoder d = FRAME_DECODER(buf, cap);
    uint8_t *to;
    size_t room = frame_space(&d, &to);
    ssize_t n = recv(p->peer, to, room, MSG_DONTWAIT);
    frame_fed(&d, n > 0 ? (size_t)n : 0);
    return d;
}

static const struct msg_exec sample = {
    .uid = MSG_ID_NONE,
    .gid = MSG_ID_NONE,
    .argv = {.v = (const char *const[]){"true", NULL}},
    .env = {.v = (const char *const[]){NULL}},
};

static void hello_travels_with_the_first_request(void **state) {
    struct pair *p = *state;
    struct err err;
    uint8_t buf[4096];
    struct frame f;
    struct frame_head head = {.type = MSG_PING, .tag = 5};
    struct frame_decoder d = heard(p, buf, sizeof(buf));
    assert_int_equal(frame_next(&d, &f), 0);
    assert_int_equal(guest_link_send(p->link, &head, NULL, NULL, 0, &err), 0);
    d = heard(p, buf, sizeof(buf));
    assert_int_equal(frame_next(&d, &f), 1);
    assert_int_equal(f.head.type, MSG_HELLO);
    /* A guest of the version before refuses a greeting with ours. */
    struct msg_hello hello;
    assert_int_equal(msg_get_hello(&f, &hello), 0);
    assert_int_equal(hello.version, MSG_VERSION_OLDEST);
    assert_int_equal(frame_next(&d, &f), 1);
    assert_int_equal(f.head.tag, 5);
}

static void the_guests_hello_is_taken_in_and_not_shown(void **state) {
    struct pair *p = *state;
    struct err err;
    struct frame f;
    say_hello(p);
    assert_int_equal(guest_link_next(p->link, &f, &err), 0);
    assert_int_equal(guest_link_features(p->link), MSG_FEATURE_TREE);
    assert_int_equal(guest_link_incarnation(p->link), 77);
}

static void another_version_is_unsupported(void **state) {
    struct pair *p = *state;
    struct err err;
    struct frame f;
    say(p, (struct frame_head){.type = MSG_HELLO}, &(struct msg_hello){MSG_VERSION + 1, 0, 0});
    assert_int_equal(guest_link_next(p->link, &f, &err), -1);
    assert_int_equal(err.code, ERR_UNSUPPORTED);
}

static void the_oldest_version_that_we_speak_is_taken(void **state) {
    struct pair *p = *state;
    struct err err;
    struct frame f;
    say(p, (struct frame_head){.type = MSG_HELLO},
        &(struct msg_hello){MSG_VERSION_OLDEST, MSG_FEATURE_TREE, 77});
    assert_int_equal(guest_link_next(p->link, &f, &err), 0);
    assert_int_equal(guest_link_incarnation(p->link), 77);
}

static void one_before_that_is_unsupported(void **state) {
    struct pair *p = *state;
    struct err err;
    struct frame f;
    say(p, (struct frame_head){.type = MSG_HELLO},
        &(struct msg_hello){MSG_VERSION_OLDEST - 1, MSG_FEATURE_TREE, 77});
    assert_int_equal(guest_link_next(p->link, &f, &err), -1);
    assert_int_equal(err.code, ERR_UNSUPPORTED);
}

static void a_run_ends_with_what_the_guest_says(void **state) {
    struct pair *p = *state;
    struct err err;
    struct guest_result r;
    say_hello(p);
    say(p, (struct frame_head){.type = MSG_EXIT, .id = 8}, &(struct msg_exit){.status = 1});
    say(p, (struct frame_head){.type = MSG_EXIT, .id = 9},
        &(struct msg_exit){.status = 11, .flags = MSG_EXIT_SIGNALED});
    assert_int_equal(guest_link_run(p->link, 9, &sample, NULL, 0, &r, &err), 0);
    assert_int_equal(guest_result_status(&r), 139);

    uint8_t buf[4096];
    struct frame f = {0};
    struct frame_decoder d = heard(p, buf, sizeof(buf));
    while (frame_next(&d, &f) == 1)
        continue;
    assert_int_equal(f.head.type, MSG_EXIT_ACK);
    assert_int_equal(f.head.id, 9);
}

static void a_refusal_keeps_its_code_and_text(void **state) {
    struct pair *p = *state;
    struct err err;
    struct guest_result r;
    struct frame f;
    say(p, (struct frame_head){.type = MSG_ERROR, .id = 9, .tag = 1},
        &(struct msg_error){.code = ERR_EXISTS, .text = {"taken", 5}});
    assert_int_equal(guest_link_run(p->link, 9, &sample, NULL, 0, &r, &err), -1);
    assert_int_equal(err.code, ERR_EXISTS);
    assert_string_equal(err.text, "cannot run the command: taken");

    say(p, (struct frame_head){.type = MSG_ERROR, .tag = 2},
        &(struct msg_error){.number = ENOENT, .text = {"stat", 4}});
    struct frame_head head = {.type = MSG_PING};
    assert_int_equal(guest_link_call(p->link, head, NULL, &f, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_string_equal(err.text, "stat: No such file or directory");
}

static void statuses_are_those_a_shell_shows(void **state) {
    (void)state;
    static const struct {
        struct guest_result result;
        int status;
    } cases[] = {
        {{.exit = {.status = 3}}, 3},
        {{.exit = {.status = 9, .flags = MSG_EXIT_SIGNALED}}, 137},
        {{.exit = {.status = 9, .flags = MSG_EXIT_SIGNALED | MSG_EXIT_TIMED_OUT}}, 124},
        {{.never_began = true, .why = {ENOENT, MSG_STEP_EXEC}}, 127},
        {{.never_began = true, .why = {EACCES, MSG_STEP_EXEC}}, 126},
        {{.never_began = true, .why = {ENOENT, MSG_STEP_CWD}}, 125},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_int_equal(guest_result_status(&cases[i].result), cases[i].status);
}

static void a_guest_that_goes_is_gone(void **state) {
    struct pair *p = *state;
    struct err err;
    struct guest_result r;
    say_hello(p);
    close(p->peer);
    p->peer = -1;
    assert_int_equal(guest_link_run(p->link, 9, &sample, NULL, 0, &r, &err), -1);
    assert_int_equal(err.code, ERR_GONE);
}

static void garbage_from_the_guest_is_an_error(void **state) {
    struct pair *p = *state;
    struct err err;
    struct frame f;
    char junk[64];
    memset(junk, 0xff, sizeof(junk));
    assert_int_equal(send(p->peer, junk, sizeof(junk), 0), sizeof(junk));
    assert_int_equal(guest_link_next(p->link, &f, &err), -1);
    assert_int_equal(guest_link_next(p->link, &f, &err), -1);
}

static void waiting_has_an_end(void **state) {
    struct pair *p = *state;
    struct err err;
    struct frame f;
    assert_int_equal(guest_link_wait(p->link, 20, &f, &err), 0);
}

static void descriptors_arrive_with_their_frame(void **state) {
    struct pair *p = *state;
    struct err err;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int fds[] = {null, null};
    struct msg_exec e = sample;
    e.stdio[0] = e.stdio[1] = MSG_STDIO_FD;
    struct frame_head head = {.type = MSG_EXEC, .id = 3};
    assert_int_equal(guest_link_send(p->link, &head, &e, fds, 2, &err), 0);
    close(null);

    uint8_t buf[4096];
    char control[256] __attribute__((aligned(8)));
    struct iovec v = {buf, sizeof(buf)};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(p->peer, &m, MSG_CMSG_CLOEXEC);
    assert_true(n > 0);
    assert_int_equal(CMSG_FIRSTHDR(&m)->cmsg_len, CMSG_LEN(2 * sizeof(int)));
    memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fds));
    assert_int_equal(close(fds[0]) | close(fds[1]), 0);
    struct frame_decoder d = FRAME_DECODER(buf, sizeof(buf));
    struct frame f = {0};
    frame_fed(&d, (size_t)n);
    while (frame_next(&d, &f) == 1)
        continue;
    assert_int_equal(f.head.flags & FRAME_FDS_MASK, 2);
}

/* One frame of the guest with n descriptors, though its head promises `promised`. */
static void say_with_fds(struct pair *p, uint32_t tag, uint16_t promised, const int *fds,
                         uint32_t n) {
    uint8_t wire[256];
    struct frame_head head = {.type = MSG_OK, .flags = promised, .tag = tag};
    size_t len = msg_encode(wire, sizeof(wire), &head, &(struct msg_ok){0});
    assert_int_equal(send_fds(p->peer, wire, len, fds, n), 0);
}

static void the_guests_descriptors_are_taken_or_closed(void **state) {
    struct pair *p = *state;
    struct err err;
    struct frame f;
    int pipe_a[2], pipe_b[2], got[4];
    assert_int_equal(pipe(pipe_a) | pipe(pipe_b), 0);
    say_hello(p);
    say_with_fds(p, 1, 1, &pipe_a[1], 1);
    say_with_fds(p, 2, 1, &pipe_b[1], 1);
    say(p, (struct frame_head){.type = MSG_OK, .tag = 3}, &(struct msg_ok){0});
    close(pipe_a[1]);
    close(pipe_b[1]);
    assert_int_equal(guest_link_next(p->link, &f, &err), 1);
    assert_int_equal(guest_link_next(p->link, &f, &err), 1);
    char c;
    assert_int_equal(read(pipe_a[0], &c, 1), 0); /* nobody took it */
    assert_int_equal(guest_link_take_fds(p->link, &f, got, 4), 1);
    assert_int_equal(fcntl(got[0], F_GETFD), FD_CLOEXEC);
    assert_int_equal(guest_link_take_fds(p->link, &f, got + 1, 3), 0);
    assert_int_equal(guest_link_next(p->link, &f, &err), 1);
    assert_int_equal(guest_link_take_fds(p->link, &f, got + 1, 3), 0);
    assert_int_equal(write(got[0], "x", 1), 1);
    assert_int_equal(read(pipe_b[0], &c, 1), 1);
    close(got[0]);
    close(pipe_a[0]);
    close(pipe_b[0]);
}

static void descriptors_that_do_not_come_are_an_error(void **state) {
    struct pair *p = *state;
    struct err err;
    struct frame f;
    say_hello(p);
    say_with_fds(p, 1, 2, &p->peer, 1);
    assert_int_equal(guest_link_next(p->link, &f, &err), -1);
    assert_int_equal(err.code, ERR_INTERNAL);
}

static void a_flood_of_descriptors_is_an_error(void **state) {
    struct pair *p = *state;
    struct err err;
    struct frame f;
    int fds[20];
    for (int i = 0; i < 20; i++)
        fds[i] = p->peer;
    say_hello(p);
    say_with_fds(p, 1, 0, fds, 20);
    say_with_fds(p, 2, 0, fds, 20);
    int got;
    while ((got = guest_link_next(p->link, &f, &err)) == 1)
        continue;
    assert_int_equal(got, -1);
}

/* As many as there is room for, with bytes that are no whole frame; then one more. */
static void one_descriptor_too_many_is_an_error(void **state) {
    struct pair *p = *state;
    struct err err;
    struct frame f;
    int fds[FRAME_FDS_MAX];
    for (unsigned i = 0; i < FRAME_FDS_MAX; i++)
        fds[i] = p->peer;
    assert_int_equal(send_fds(p->peer, "a", 1, fds, FRAME_FDS_MAX), 0);
    assert_int_equal(guest_link_next(p->link, &f, &err), 0);
    assert_int_equal(send_fds(p->peer, "b", 1, fds, 1), 0);
    assert_int_equal(guest_link_next(p->link, &f, &err), -1);
}

static void a_peer_that_does_not_read_is_noticed_not_waited_for(void **state) {
    struct pair *p = *state;
    struct err err;
    static uint8_t chunk[MSG_CHUNK_MAX];
    uint64_t sent = 0;
    int result = 0;
    while (result == 0 && sent < (64u << 20)) {
        result = guest_link_stdin(p->link, 1, sent, chunk, sizeof(chunk), false, &err);
        sent += result == 0 ? sizeof(chunk) : 0;
    }
    assert_int_equal(result, -1);
    assert_int_equal(err.code, ERR_LIMIT);
    assert_int_equal(guest_link_events(p->link), POLLIN | POLLOUT);

    static uint8_t buf[FRAME_BYTES_MAX];
    struct frame_decoder d = FRAME_DECODER(buf, sizeof(buf));
    uint64_t got = 0;
    while (got < sent) {
        uint8_t *to;
        struct frame f;
        size_t room = frame_space(&d, &to);
        ssize_t n = recv(p->peer, to, room, MSG_DONTWAIT);
        frame_fed(&d, n > 0 ? (size_t)n : 0);
        while (frame_next(&d, &f) == 1)
            got += f.head.type == MSG_STDIN ? f.head.bytes - 8 : 0;
        assert_int_equal(guest_link_flush(p->link, &err), 0);
    }
    assert_int_equal(got, sent);
    assert_int_equal(guest_link_events(p->link), POLLIN);
}

/* Reads as a guest does: bytes and descriptors, each frame's claimed before the next are read. */
struct listener {
    struct frame_decoder in;
    uint8_t buf[FRAME_BYTES_MAX];
    int fds[2 * FRAME_FDS_MAX];
    uint32_t nfds, most;
    uint32_t frames, parcels;
    bool wrong;
};

static void claim(struct listener *l, const struct frame *f) {
    uint32_t n = f->head.flags & FRAME_FDS_MASK;
    l->frames++;
    l->parcels += n > 0;
    if (n > l->nfds) {
        l->wrong = true;
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        /* Each is a file whose size says which frame it belongs to. */
        if (lseek(l->fds[i], 0, SEEK_END) != (off_t)f->head.id)
            l->wrong = true;
        close(l->fds[i]);
    }
    l->nfds -= n;
    memmove(l->fds, l->fds + n, l->nfds * sizeof(int));
}

static bool listen_once(struct listener *l, int peer) {
    uint8_t *to;
    size_t room = frame_space(&l->in, &to);
    char control[CMSG_SPACE(FRAME_FDS_MAX * sizeof(int))];
    struct iovec v = {to, room};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(peer, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n <= 0)
        return false;
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    if (h) {
        uint32_t count = (uint32_t)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(l->fds + l->nfds, CMSG_DATA(h), count * sizeof(int));
        l->nfds += count;
        l->most = l->most < l->nfds ? l->nfds : l->most;
    }
    frame_fed(&l->in, (size_t)n);
    struct frame f;
    while (frame_next(&l->in, &f) == 1)
        claim(l, &f);
    return true;
}

static void descriptors_wait_with_their_frames_when_the_socket_is_full(void **state) {
    struct pair *p = *state;
    static struct listener l;
    static uint8_t bulk[MSG_CHUNK_MAX];
    struct err err;
    uint32_t sent = 0, with_fds = 0;
    l = (struct listener){.in = FRAME_DECODER(l.buf, sizeof(l.buf))};
    for (uint32_t id = 1; id <= 60; id++) {
        int fds[12];
        uint32_t n = id % 3 == 0 ? 12 : 0;
        for (uint32_t i = 0; i < n; i++) {
            fds[i] = memfd_create("f", MFD_CLOEXEC);
            assert_int_equal(ftruncate(fds[i], id), 0);
        }
        struct msg_data data = {.data = {bulk, sizeof(bulk)}};
        struct frame_head head = {.type = MSG_STDIN, .id = id};
        assert_int_equal(guest_link_send(p->link, &head, &data, fds, n, &err), 0);
        sent++;
        with_fds += n > 0;
        while (n)
            close(fds[--n]); /* they are the caller's, gone or not */
        if (id % 20 == 0)
            listen_once(&l, p->peer);
    }
    assert_true(guest_link_backlog(p->link) > 0);
    for (int turns = 0; turns < 10000 && l.frames < sent + 1; turns++) {
        assert_int_equal(guest_link_flush(p->link, &err), 0);
        listen_once(&l, p->peer);
    }
    assert_int_equal(l.frames, sent + 1); /* and HELLO */
    assert_int_equal(l.parcels, with_fds);
    assert_false(l.wrong);
    assert_true(l.most <= FRAME_FDS_MAX);
    assert_int_equal(guest_link_backlog(p->link), 0);
}

static void a_queued_frame_leaves_with_the_next(void **state) {
    struct pair *p = *state;
    struct err err;
    uint8_t buf[4096];
    struct frame f;
    struct frame_decoder d;
    assert_int_equal(guest_link_flush(p->link, &err), 0);
    d = heard(p, buf, sizeof(buf));
    struct frame_head ack = {.type = MSG_EXIT_ACK, .id = 3}, ping = {.type = MSG_PING, .tag = 9};
    assert_int_equal(guest_link_queue(p->link, &ack, NULL, &err), 0);
    d = heard(p, buf, sizeof(buf));
    assert_int_equal(frame_next(&d, &f), 0);
    assert_int_equal(guest_link_send(p->link, &ping, NULL, NULL, 0, &err), 0);
    d = heard(p, buf, sizeof(buf));
    assert_int_equal(frame_next(&d, &f), 1);
    assert_int_equal(f.head.type, MSG_EXIT_ACK);
    assert_int_equal(frame_next(&d, &f), 1);
    assert_int_equal(f.head.tag, 9);
}

static void a_code_that_does_not_exist_is_internal(void **state) {
    struct pair *p = *state;
    struct msg_error e = {.code = 4000000, .text = {"x", 1}};
    struct frame f;
    struct err err;
    say_hello(p);
    say(p, (struct frame_head){.type = MSG_ERROR, .tag = 1}, &e);
    assert_int_equal(guest_link_wait(p->link, 100, &f, &err), 1);
    assert_int_equal(guest_link_error(&f, &err), -1);
    assert_int_equal(err.code, ERR_INTERNAL);
}

#define WITH_PAIR(test) cmocka_unit_test_setup_teardown(test, pair_open, pair_close)

/* The first tag of a link is 1. */
static void a_call_takes_only_the_answer_to_what_was_asked(void **state) {
    struct pair *p = *state;
    static const struct {
        uint16_t request, answer;
        int result;
    } cases[] = {
        {MSG_TABLE, MSG_TABLE_ROWS, 0}, {MSG_TABLE, MSG_LOG_GREW, -1},  {MSG_TABLE, MSG_OK, -1},
        {MSG_PING, MSG_OK, 0},          {MSG_PING, MSG_BUSY_STATE, -1}, {MSG_BUSY, MSG_ENTRY, -1},
    };
    static const struct msg_entry blank; /* all zero: an empty message of any kind */
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct frame f;
        struct err err = {0};
        pair_close(state);
        pair_open(state);
        say_hello(p);
        say(p, (struct frame_head){.type = cases[i].answer, .tag = 1}, &blank);
        assert_int_equal(
            guest_link_call(p->link, (struct frame_head){.type = cases[i].request}, NULL, &f, &err),
            cases[i].result);
        assert_int_equal(err.code, cases[i].result ? ERR_INTERNAL : 0);
    }
}

static void a_guest_greets_once(void **state) {
    struct pair *p = *state;
    struct err err;
    struct frame f;
    say_hello(p);
    assert_int_equal(guest_link_next(p->link, &f, &err), 0);
    say(p, (struct frame_head){.type = MSG_HELLO}, &(struct msg_hello){MSG_VERSION, 0, 78});
    assert_int_equal(guest_link_next(p->link, &f, &err), -1);
    assert_int_equal(guest_link_incarnation(p->link), 77);
}

UNIT_MAIN(WITH_PAIR(a_call_takes_only_the_answer_to_what_was_asked), WITH_PAIR(a_guest_greets_once),
          WITH_PAIR(hello_travels_with_the_first_request),
          WITH_PAIR(the_guests_hello_is_taken_in_and_not_shown),
          WITH_PAIR(another_version_is_unsupported),
          WITH_PAIR(the_oldest_version_that_we_speak_is_taken),
          WITH_PAIR(one_before_that_is_unsupported), WITH_PAIR(a_run_ends_with_what_the_guest_says),
          WITH_PAIR(a_refusal_keeps_its_code_and_text),
          cmocka_unit_test(statuses_are_those_a_shell_shows), WITH_PAIR(a_guest_that_goes_is_gone),
          WITH_PAIR(garbage_from_the_guest_is_an_error), WITH_PAIR(waiting_has_an_end),
          WITH_PAIR(descriptors_arrive_with_their_frame),
          WITH_PAIR(the_guests_descriptors_are_taken_or_closed),
          WITH_PAIR(descriptors_that_do_not_come_are_an_error),
          WITH_PAIR(a_flood_of_descriptors_is_an_error),
          WITH_PAIR(one_descriptor_too_many_is_an_error),
          WITH_PAIR(descriptors_wait_with_their_frames_when_the_socket_is_full),
          WITH_PAIR(a_queued_frame_leaves_with_the_next),
          WITH_PAIR(a_code_that_does_not_exist_is_internal),
          WITH_PAIR(a_peer_that_does_not_read_is_noticed_not_waited_for))
