#include "tests/unit/unit.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "machine/guest.h"
#include "tests/unit/loops.h"

/* A guest played by hand over a socketpair; the loop runs until told to stop, or a second is over.
 */
struct play {
    struct loop *loop;
    struct guest *guest;
    int peer;
    unsigned gone; /* how often on_gone was called */
    unsigned want; /* stop when so many answers have come */
    unsigned answers;
    unsigned code; /* of the last one */
    unsigned why;  /* it is gone */
    uint16_t type; /* of the last frame */
    bool frees;    /* from within the next callback */
};

static void on_gone(void *arg) {
    struct play *p = arg;
    p->gone++;
    p->why = guest_why_gone(p->guest)->code;
    loop_stop(p->loop);
}

static int play_open(void **state) {
    static struct play p;
    int ends[2];
    struct err err;
    p = (struct play){.loop = loop_new(&err), .peer = -1};
    if (!p.loop || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return -1;
    p.peer = ends[1];
    p.guest = guest_open(p.loop, ends[0], on_gone, &p, &err);
    *state = &p;
    return p.guest ? 0 : -1;
}

static int play_close(void **state) {
    struct play *p = *state;
    guest_free(p->guest);
    if (p->peer >= 0)
        close(p->peer);
    loop_free(p->loop);
    return 0;
}

static void say(struct play *p, struct frame_head head, const void *msg) {
    uint8_t wire[4096];
    size_t n = msg_encode(wire, sizeof(wire), &head, msg);
    assert_true(n > 0);
    assert_int_equal(send(p->peer, wire, n, 0), n);
}

static void say_hello(struct play *p) {
    struct msg_hello hello = {MSG_VERSION, MSG_FEATURE_TREE, 77};
    say(p, (struct frame_head){.type = MSG_HELLO}, &hello);
}

/* The frames that have been sent so far. */
struct heard {
    size_t count;
    struct frame_head heads[64];
};

static struct heard hear(struct play *p) {
    static uint8_t buf[FRAME_BYTES_MAX];
    struct frame_decoder d = FRAME_DECODER(buf, sizeof(buf));
    struct heard h = {0};
    struct frame f;
    ssize_t n = recv(p->peer, buf, sizeof(buf), MSG_DONTWAIT);
    frame_fed(&d, n > 0 ? (size_t)n : 0);
    while (h.count < 64 && frame_next(&d, &f) == 1)
        h.heads[h.count++] = f.head;
    return h;
}

static void note(struct play *p, unsigned code) {
    p->answers++;
    p->code = code;
    if (p->frees) {
        p->frees = false;
        guest_free(p->guest);
        p->guest = NULL;
        loop_stop(p->loop);
    }
    if (p->answers == p->want)
        loop_stop(p->loop);
}

static void answered(void *arg, const struct frame *f, const struct err *err) {
    struct play *p = arg;
    p->type = f ? f->head.type : 0;
    note(p, err ? err->code : 0);
}

static void ask(struct play *p, uint16_t type) {
    static const struct msg_path path = {.path = {"/x", 2}};
    bool has_path = type == MSG_STAT || type == MSG_MKDIR;
    guest_request(p->guest, (struct frame_head){.type = type}, has_path ? &path : NULL, NULL, 0,
                  answered, p);
}

/* The tag that the guest was asked with last. */
static uint32_t last_tag(struct play *p) {
    struct heard h = hear(p);
    assert_true(h.count > 0);
    return h.heads[h.count - 1].tag;
}

static void a_request_has_one_answer(void **state) {
    struct play *p = *state;
    ask(p, MSG_PING);
    assert_int_equal(p->answers, 0);
    uint32_t tag = last_tag(p);
    say_hello(p);
    say(p, (struct frame_head){.type = MSG_OK, .tag = tag}, &(struct msg_ok){0});
    p->want = 1;
    unit_loop_run(p->loop, 1000);
    assert_true(p->answers == 1 && p->type == MSG_OK && p->gone == 0);
    assert_int_equal(guest_incarnation(p->guest), 77);
    /* The same answer again is one to nothing. */
    say(p, (struct frame_head){.type = MSG_OK, .tag = tag}, &(struct msg_ok){0});
    unit_loop_run(p->loop, 1000);
    assert_true(p->answers == 1 && p->gone == 1 && p->why == ERR_INTERNAL);
}

static void a_refusal_keeps_its_code(void **state) {
    struct play *p = *state;
    ask(p, MSG_STAT);
    struct msg_error e = {.code = ERR_DENIED, .text = {"no", 2}};
    uint32_t tag = last_tag(p);
    say_hello(p);
    say(p, (struct frame_head){.type = MSG_ERROR, .tag = tag}, &e);
    p->want = 1;
    unit_loop_run(p->loop, 1000);
    assert_true(p->code == ERR_DENIED && p->gone == 0);
}

static void many_requests_are_answered_in_any_order(void **state) {
    struct play *p = *state;
    uint32_t tags[50];
    for (int i = 0; i < 50; i++)
        ask(p, MSG_PING);
    struct heard h = hear(p);
    assert_int_equal(h.count, 51);
    for (int i = 0; i < 50; i++)
        tags[i] = h.heads[1 + i].tag;
    say_hello(p);
    for (int i = 49; i >= 0; i--)
        say(p, (struct frame_head){.type = MSG_OK, .tag = tags[i]}, &(struct msg_ok){0});
    p->want = 50;
    unit_loop_run(p->loop, 1000);
    assert_true(p->answers == 50 && p->gone == 0);
}

static void what_is_pending_ends_with_the_connection(void **state) {
    struct play *p = *state;
    ask(p, MSG_STAT);
    hear(p);
    close(p->peer);
    p->peer = -1;
    unit_loop_run(p->loop, 1000);
    assert_true(p->answers == 1 && p->gone == 1);
    p->gone = 0;
    ask(p, MSG_STAT);
    assert_int_equal(p->answers, 1); /* never from within the call */
    p->want = 2;
    unit_loop_run(p->loop, 1000);
    assert_true(p->answers == 2 && p->code == ERR_GONE && p->gone == 0);
}

static void what_may_have_happened_is_unknown(void **state) {
    struct play *p = *state;
    ask(p, MSG_MKDIR);
    hear(p);
    close(p->peer);
    p->peer = -1;
    p->want = 1;
    unit_loop_run(p->loop, 1000);
    assert_int_equal(p->code, ERR_UNKNOWN);
}

/* 0: the connection has ended; -1: there is nothing more to read. */
static ssize_t read_to_end(int fd) {
    char bytes[4096];
    ssize_t n;
    while ((n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
        continue;
    return n;
}

static void rubbish_closes_the_connection(void **state) {
    struct play *p = *state;
    static const struct {
        const char *bytes;
        size_t n;
    } cases[] = {
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16},
        {"\0\0\0\0\x77\x77\0\0\0\0\0\0\0\0\0\0", 16}, /* no such type */
        {"\0\0\0\0\x10\0\0\0\1\0\0\0\1\0\0\0", 16},   /* EXEC is not the guest's to say */
        {"\0\0\0\0\x02\0\0\0\0\0\0\0\x09\0\0\0", 16}, /* OK to nothing */
        {"\2\0\0\0\x17\0\0\0\1\0\0\0\0\0\0\0xx", 18}, /* a short EXIT */
        {"\0\0\0\0\x02\0\3\0\0\0\0\0\0\0\0\0", 16},   /* descriptors that did not come */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        if (i > 0) {
            play_close(state);
            play_open(state);
        }
        say_hello(p);
        assert_int_equal(send(p->peer, cases[i].bytes, cases[i].n, 0), cases[i].n);
        unit_loop_run(p->loop, 1000);
        assert_int_equal(p->gone, 1);
        assert_int_equal(p->why, ERR_INTERNAL);
        assert_int_equal(read_to_end(p->peer), 0);
    }
}

static void nothing_is_believed_before_hello(void **state) {
    struct play *p = *state;
    ask(p, MSG_PING);
    say(p, (struct frame_head){.type = MSG_OK, .tag = last_tag(p)}, &(struct msg_ok){0});
    unit_loop_run(p->loop, 1000);
    assert_true(p->gone == 1 && p->answers == 1 && p->why == ERR_INTERNAL);
}

static void another_version_is_unsupported(void **state) {
    struct play *p = *state;
    struct msg_hello hello = {MSG_VERSION + 1, 0, 77};
    say(p, (struct frame_head){.type = MSG_HELLO}, &hello);
    unit_loop_run(p->loop, 1000);
    assert_true(p->gone == 1 && p->why == ERR_UNSUPPORTED);
}

/* Commands. */

struct follow {
    struct guest_command command;
    struct play *play;
    unsigned exits, losses, refusals, failures;
    uint64_t bytes;
    bool eof;
};

static void exited(void *arg, const struct msg_exit *m) {
    struct follow *f = arg;
    (void)m;
    f->exits++;
    note(f->play, 0);
}

static void lost(void *arg, const struct err *err) {
    struct follow *f = arg;
    f->losses++;
    note(f->play, err->code);
}

static void refused(void *arg, const struct err *err) {
    struct follow *f = arg;
    f->refusals++;
    note(f->play, err->code);
}

static void failed(void *arg, const struct msg_exec_failed *m) {
    struct follow *f = arg;
    (void)m;
    f->failures++;
    note(f->play, 0);
}

static void data(void *arg, unsigned stream, uint64_t offset, const uint8_t *p, uint32_t n,
                 bool eof) {
    struct follow *f = arg;
    (void)p;
    assert_true(stream == 1 && offset == f->bytes);
    f->bytes += n;
    f->eof = eof;
    note(f->play, 0);
}

static const struct msg_exec sample = {
    .argv = {.v = (const char *const[]){"true", NULL}},
    .env = {.v = (const char *const[]){NULL}},
};

static void start(struct follow *f, struct play *p, uint32_t id) {
    *f = (struct follow){.play = p,
                         .command = {.id = id,
                                     .arg = f,
                                     .exited = exited,
                                     .lost = lost,
                                     .refused = refused,
                                     .failed = failed,
                                     .data = data}};
    guest_exec(p->guest, &f->command, &sample, NULL, 0);
}

static void a_command_costs_one_send(void **state) {
    struct play *p = *state;
    static struct follow f[3];
    say_hello(p);
    for (uint32_t i = 0; i < 3; i++) {
        start(&f[i], p, 10 + i);
        struct heard h = hear(p);
        /* HELLO at first, then what acknowledges the one before. */
        assert_int_equal(h.count, 2);
        assert_int_equal(h.heads[0].type, i ? MSG_EXIT_ACK : MSG_HELLO);
        assert_int_equal(h.heads[0].id, i ? 9 + i : 0);
        assert_int_equal(h.heads[1].type, MSG_EXEC);
        say(p, (struct frame_head){.type = MSG_EXIT, .id = 10 + i}, &(struct msg_exit){0});
        p->want = i + 1;
        unit_loop_run(p->loop, 1000);
        assert_int_equal(f[i].exits, 1);
        guest_forget(p->guest, &f[i].command, true);
        assert_int_equal(hear(p).count, 0);
    }
    unit_loop_run(p->loop, 50); /* the last acknowledgement has nothing to travel with */
    struct heard h = hear(p);
    assert_true(h.count == 1 && h.heads[0].type == MSG_EXIT_ACK && h.heads[0].id == 12);
}

static void an_exit_is_told_once(void **state) {
    struct play *p = *state;
    static struct follow f;
    say_hello(p);
    start(&f, p, 1);
    for (int i = 0; i < 3; i++)
        say(p, (struct frame_head){.type = MSG_EXIT, .id = 1}, &(struct msg_exit){0});
    unit_loop_run(p->loop, 50);
    assert_true(f.exits == 1 && p->gone == 0);
    close(p->peer);
    p->peer = -1;
    unit_loop_run(p->loop, 1000);
    assert_true(f.exits == 1 && f.losses == 1 && p->gone == 1);
    guest_forget(p->guest, &f.command, true); /* harmless */
}

static void a_command_that_never_began_is_forgotten(void **state) {
    struct play *p = *state;
    static struct follow f;
    say_hello(p);
    start(&f, p, 1);
    say(p, (struct frame_head){.type = MSG_EXEC_FAILED, .id = 1, .tag = UINT32_MAX},
        &(struct msg_exec_failed){2, MSG_STEP_EXEC});
    p->want = 1;
    unit_loop_run(p->loop, 1000);
    assert_int_equal(f.failures, 1);
    start(&f, p, 1);
    struct msg_error e = {.code = ERR_LIMIT, .text = {"many", 4}};
    say(p, (struct frame_head){.type = MSG_ERROR, .id = 1, .tag = UINT32_MAX}, &e);
    p->want = 2;
    unit_loop_run(p->loop, 1000);
    assert_true(f.refusals == 1 && p->code == ERR_LIMIT && p->gone == 0);
}

static void an_id_twice_is_refused(void **state) {
    struct play *p = *state;
    static struct follow a, b;
    start(&a, p, 1);
    start(&b, p, 1);
    assert_int_equal(b.refusals, 0);
    p->want = 1;
    unit_loop_run(p->loop, 1000);
    assert_true(b.refusals == 1 && p->code == ERR_EXISTS && a.refusals == 0);
}

static void output_that_nobody_follows_is_dropped(void **state) {
    struct play *p = *state;
    static struct follow f;
    struct msg_data d = {.offset = 0, .data = {(const uint8_t *)"abc", 3}};
    say_hello(p);
    start(&f, p, 1);
    say(p, (struct frame_head){.type = MSG_STDOUT, .id = 99}, &d);
    say(p, (struct frame_head){.type = MSG_STDOUT, .id = 1}, &d);
    d.offset = 3;
    say(p, (struct frame_head){.type = MSG_STDOUT, .id = 1, .flags = FRAME_EOF}, &d);
    p->want = 2;
    unit_loop_run(p->loop, 1000);
    assert_true(f.bytes == 6 && f.eof && p->gone == 0);
}

/* Peers that do not read, and peers that never stop. */

static void a_guest_that_does_not_read_is_refused_not_waited_for(void **state) {
    struct play *p = *state;
    static uint8_t bulk[MSG_CHUNK_MAX];
    struct msg_write w = {.path = {"/x", 2}, .data = {bulk, sizeof(bulk)}};
    unsigned asked = 0;
    for (; asked < 200; asked++)
        guest_request(p->guest, (struct frame_head){.type = MSG_WRITE}, &w, NULL, 0, answered, p);
    assert_true(guest_backlog(p->guest) > 0 && guest_backlog(p->guest) < 6u << 20);
    unit_loop_run(p->loop, 50);
    assert_true(p->answers > 0 && p->answers < asked && p->code == ERR_LIMIT && p->gone == 0);
    close(p->peer);
    p->peer = -1;
    unit_loop_run(p->loop, 1000);
    assert_true(p->answers == asked && p->gone == 1);
}

static void too_many_requests_are_refused(void **state) {
    struct play *p = *state;
    for (int i = 0; i < 1100; i++)
        ask(p, MSG_PING);
    unit_loop_run(p->loop, 50);
    assert_true(p->answers == 1100 - 1024 && p->code == ERR_LIMIT && p->gone == 0);
}

static unsigned ticks;

static void tick(void *arg) {
    struct play *p = arg;
    static uint8_t wire[65536];
    /* A flood of frames for a command nobody knows, as fast as the socket takes it. */
    struct msg_data d = {.data = {wire, 1000}};
    uint8_t one[2048];
    size_t n = msg_encode(one, sizeof(one), &(struct frame_head){.type = MSG_STDOUT, .id = 5}, &d);
    for (int i = 0; i < 64; i++)
        if (send(p->peer, one, n, MSG_DONTWAIT) < (ssize_t)n)
            break;
    ticks++;
}

static void a_flood_does_not_stop_the_loop(void **state) {
    struct play *p = *state;
    say_hello(p);
    ticks = 0;
    int small = 1 << 17;
    setsockopt(p->peer, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    struct loop_timer *t = loop_timer_new(p->loop, tick, p);
    loop_timer_start(t, 1, 1);
    unit_loop_run(p->loop, 200);
    loop_timer_free(t);
    assert_true(ticks > 20);
}

/* Freeing it from within. */

static void it_may_be_freed_from_any_callback(void **state) {
    struct play *p = *state;
    static struct follow f, other, third;
    for (int which = 0; which < 6; which++) {
        play_close(state);
        play_open(state);
        say_hello(p);
        start(&other, p, 2);
        ask(p, MSG_PING);
        uint32_t tag = last_tag(p);
        start(&f, p, 1);
        p->frees = true;
        switch (which) {
        case 0:
            say(p, (struct frame_head){.type = MSG_OK, .tag = tag}, &(struct msg_ok){0});
            break;
        case 1:
            say(p, (struct frame_head){.type = MSG_EXIT, .id = 1}, &(struct msg_exit){0});
            break;
        case 2:
            say(p, (struct frame_head){.type = MSG_STDOUT, .id = 1}, &(struct msg_data){0});
            break;
        case 3:
            start(&third, p, 2); /* refused: the id is taken */
            break;
        case 4:
            close(p->peer);
            p->peer = -1;
            break;
        default:
            say(p, (struct frame_head){.type = MSG_EXIT, .id = 2}, &(struct msg_exit){0});
        }
        if (p->peer >= 0)
            say(p, (struct frame_head){.type = MSG_EXIT, .id = 2}, &(struct msg_exit){0});
        unit_loop_run(p->loop, 1000);
        assert_true(p->answers == 1 && p->gone == 0 && p->guest == NULL);
    }
}

/* Whatever is asked, only its own answer is taken; each of the others closes the connection. */

static const uint16_t requests[] = {
    MSG_PING,  MSG_KILL,  MSG_TABLE,   MSG_BUSY,  MSG_LOG_OPEN, MSG_SWITCH_ROOT, MSG_SIGNAL,
    MSG_STAT,  MSG_LIST,  MSG_READ,    MSG_WRITE, MSG_MKDIR,    MSG_MOVE,        MSG_REMOVE,
    MSG_CHMOD, MSG_CHOWN, MSG_SYMLINK, MSG_META,  MSG_META_SET, MSG_FILE_ROOT,
};

/* Enough for every kind: all zeroes is an empty message. */
static union {
    struct msg_exec exec;
    uint8_t room[4096];
} blank;

/* A message of that kind, full of numbers that would be wild pointers in another one. */
static void say_kind(struct play *p, uint16_t kind, uint32_t id, uint32_t tag) {
    static const struct msg_log wild = {{0x4141414141414141, 0x4141414141414141}, 3};
    bool is_log = kind == MSG_LOG_GREW || kind == MSG_LOG_WAIT;
    say(p, (struct frame_head){.type = kind, .id = id, .tag = tag},
        is_log ? (const void *)&wild : &blank);
}

static bool has_kind(uint16_t kind) {
    return strcmp(msg_type_name(kind), "?") != 0;
}

static void every_request_takes_only_its_own_answer(void **state) {
    struct play *p = *state;
    enum { KINDS = MSG_LOG_DATA + 1 };
    for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++)
        for (uint16_t kind = MSG_OK; kind < KINDS; kind++) {
            if (!has_kind(kind) || kind == MSG_HELLO)
                continue;
            play_close(state);
            play_open(state);
            say_hello(p);
            guest_request(p->guest, (struct frame_head){.type = requests[i]}, &blank, NULL, 0,
                          answered, p);
            say_kind(p, kind, 0, last_tag(p));
            p->want = 1;
            unit_loop_run(p->loop, 60000);
            assert_int_equal(p->answers, 1);
            if (msg_answers(requests[i], kind))
                assert_true(p->gone == 0 && (p->type == kind || kind == MSG_ERROR));
            else
                assert_true(p->type == 0 && p->code != 0);
        }
}

static void a_command_takes_only_the_answers_of_its_state(void **state) {
    struct play *p = *state;
    static struct follow f;
    enum { EXEC_TAG = -1, ATTACH_TAG = -2, WATCH_TAG = -3, LOG_TAG = -4 };
    static const struct {
        uint16_t first, second;
        int first_tag, second_tag;
    } cases[] = {
        {MSG_EXIT, MSG_EXEC_FAILED, 0, EXEC_TAG},
        {MSG_EXIT, MSG_EXEC_STARTED, 0, EXEC_TAG},
        {MSG_EXIT, MSG_ERROR, 0, EXEC_TAG},
        {MSG_EXEC_STARTED, MSG_EXEC_STARTED, EXEC_TAG, EXEC_TAG},
        {MSG_EXEC_STARTED, MSG_EXEC_FAILED, EXEC_TAG, EXEC_TAG},
        {MSG_EXEC_STARTED, MSG_ERROR, EXEC_TAG, EXEC_TAG},
        {MSG_EXEC_STARTED, MSG_LOG_GREW, EXEC_TAG, LOG_TAG},
        {MSG_EXEC_STARTED, MSG_OK, EXEC_TAG, ATTACH_TAG},
        {MSG_EXEC_STARTED, MSG_ENTRY, EXEC_TAG, WATCH_TAG},
        {MSG_EXEC_STARTED, MSG_EXIT, EXEC_TAG, EXEC_TAG},
        {MSG_EXEC_STARTED, MSG_HELLO, EXEC_TAG, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        play_close(state);
        play_open(state);
        say_hello(p);
        start(&f, p, 1);
        say_kind(p, cases[i].first, 1, (uint32_t)cases[i].first_tag);
        say_kind(p, cases[i].second, 1, (uint32_t)cases[i].second_tag);
        unit_loop_run(p->loop, 60000);
        assert_true(p->gone == 1 && p->why == ERR_INTERNAL);
        assert_true(f.failures == 0 && f.refusals == 0 && f.losses == 1);
        assert_int_equal(f.exits, cases[i].first == MSG_EXIT);
    }
}

static void a_read_brings_no_more_than_was_asked_for(void **state) {
    struct play *p = *state;
    struct msg_read r = {.bytes = 4, .path = {"/x", 2}};
    for (uint32_t n = 4; n <= 5; n++) {
        play_close(state);
        play_open(state);
        say_hello(p);
        guest_request(p->guest, (struct frame_head){.type = MSG_READ}, &r, NULL, 0, answered, p);
        struct msg_read_data m = {.size = 5, .data = {(const uint8_t *)"12345", n}};
        say(p, (struct frame_head){.type = MSG_READ_DATA, .tag = last_tag(p)}, &m);
        p->want = 1;
        unit_loop_run(p->loop, 60000);
        assert_int_equal(p->answers, 1);
        assert_int_equal(p->type, n == 4 ? MSG_READ_DATA : 0);
    }
}

#define PLAYED(f) cmocka_unit_test_setup_teardown(f, play_open, play_close)

UNIT_MAIN(PLAYED(a_request_has_one_answer), PLAYED(a_refusal_keeps_its_code),
          PLAYED(many_requests_are_answered_in_any_order),
          PLAYED(what_is_pending_ends_with_the_connection),
          PLAYED(what_may_have_happened_is_unknown), PLAYED(rubbish_closes_the_connection),
          PLAYED(nothing_is_believed_before_hello), PLAYED(another_version_is_unsupported),
          PLAYED(a_command_costs_one_send), PLAYED(an_exit_is_told_once),
          PLAYED(a_command_that_never_began_is_forgotten), PLAYED(an_id_twice_is_refused),
          PLAYED(output_that_nobody_follows_is_dropped),
          PLAYED(a_guest_that_does_not_read_is_refused_not_waited_for),
          PLAYED(too_many_requests_are_refused), PLAYED(a_flood_does_not_stop_the_loop),
          PLAYED(it_may_be_freed_from_any_callback),
          PLAYED(every_request_takes_only_its_own_answer),
          PLAYED(a_command_takes_only_the_answers_of_its_state),
          PLAYED(a_read_brings_no_more_than_was_asked_for))
