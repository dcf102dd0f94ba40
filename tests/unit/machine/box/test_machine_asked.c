/* A machine knows what was asked of it until that is answered, so that nobody lets go of it. */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fdio.h"
#include "machine/box/inner.h"
#include "tests/unit/loops.h"
#include "tests/unit/scratch.h"

/* Its guest and its spawner, played by hand. */
struct play {
    struct scratch dir;
    struct loop *loop;
    struct machine_host host;
    struct box *box;
    int guest, listener, spawner;
    struct loop_watch *guest_watch, *spawner_watch;
    bool greeted;
    unsigned looks;    /* that the guest answered */
    unsigned freezes;  /* that the spawner answered with `busy` */
    unsigned busy_for; /* so many of them */
    unsigned answers;
    unsigned code; /* of the last one */
};

static void guest_gone(void *arg) {
    (void)arg;
}

static void say(struct play *p, struct frame_head head, const void *msg) {
    uint8_t wire[4096];
    size_t n = msg_encode(wire, sizeof(wire), &head, msg);
    assert_true(n > 0);
    assert_int_equal(send(p->guest, wire, n, 0), n);
}

static void answer_frame(struct play *p, const struct frame_head *h) {
    static const struct msg_busy_state busy = {.busy = 1};
    if (h->type == MSG_BUSY) {
        p->looks++;
        say(p, (struct frame_head){.type = MSG_BUSY_STATE, .tag = h->tag}, &busy);
    } else if (h->type == MSG_TABLE) {
        say(p, (struct frame_head){.type = MSG_TABLE_ROWS, .tag = h->tag}, &(struct msg_rows){0});
    } else if (h->type == MSG_KILL) {
        say(p, (struct frame_head){.type = MSG_OK, .tag = h->tag}, &(struct msg_ok){0});
    }
}

/* A guest whose last process does not die, and which dies itself while that is tried again. */
static void guest_asked(void *arg, unsigned events) {
    static uint8_t buf[FRAME_BYTES_MAX];
    struct play *p = arg;
    struct frame_decoder d = FRAME_DECODER(buf, sizeof(buf));
    struct frame f;
    (void)events;
    assert_true(p->box->m.calls == 1);
    ssize_t n = recv(p->guest, buf, sizeof(buf), MSG_DONTWAIT);
    frame_fed(&d, n > 0 ? (size_t)n : 0);
    if (!p->greeted)
        say(p, (struct frame_head){.type = MSG_HELLO},
            &(struct msg_hello){MSG_VERSION, MSG_FEATURE_TREE, 77});
    p->greeted = true;
    while (frame_next(&d, &f) == 1)
        answer_frame(p, &f.head);
    if (p->looks == 3) {
        loop_watch_free(TAKE(p->guest_watch));
        close_fd(&p->guest);
    }
}

static void spawner_asked(void *arg, unsigned events) {
    struct play *p = arg;
    static char packet[PLAN_MAX_BYTES];
    static struct plan_message m, back;
    struct fd_message in = {0};
    struct err err;
    (void)events;
    if (recv_fds(p->spawner, packet, sizeof(packet), &in) < 0 || !in.len)
        return;
    fd_message_close(&in);
    assert_int_equal(plan_decode(packet, in.len, &m, &err), 0);
    assert_int_equal(m.type, PLAN_FREEZE);
    assert_true(machine_is_asked(&p->box->m));
    bool busy = p->freezes++ < p->busy_for;
    back = (struct plan_message){
        .type = PLAN_ERROR, .tag = m.tag, .error_code = busy ? ERR_BUSY : ERR_NOT_FOUND};
    assert_int_equal(send_fds(p->spawner, packet, plan_encode(&back, packet), NULL, 0), 0);
}

static void on_connect(void *arg, unsigned events) {
    struct play *p = arg;
    struct err err;
    (void)events;
    p->spawner = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    assert_true(p->spawner >= 0);
    loop_watch_free(p->spawner_watch);
    assert_int_equal(
        loop_watch_new(p->loop, p->spawner, LOOP_READ, spawner_asked, p, &p->spawner_watch, &err),
        0);
}

static void listen_as_spawner(struct play *p) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct err err;
    snprintf(a.sun_path, sizeof(a.sun_path), "%s/spawn.sock", p->dir.path);
    p->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(p->listener, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(p->listener, 1), 0);
    assert_int_equal(
        loop_watch_new(p->loop, p->listener, LOOP_READ, on_connect, p, &p->spawner_watch, &err), 0);
}

static void make_box(struct play *p) {
    int ends[2];
    struct err err;
    struct box *b = p->box = xnew(struct box);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    p->guest = ends[1];
    b->m.driver = &box_driver;
    b->m.host = &p->host;
    snprintf(b->m.id, sizeof(b->m.id), "m-aaaaaaaaaaaa");
    for (size_t i = 0; i < PLAN_MAX_GRANTS; i++)
        b->m.uppers[i] = -1;
    for (size_t i = 0; i < PLAN_GATE_FDS; i++)
        b->m.doors[i] = -1;
    b->m.guest = guest_open(p->loop, ends[0], guest_gone, p, &err);
    assert_non_null(b->m.guest);
    assert_int_equal(
        loop_watch_new(p->loop, p->guest, LOOP_READ, guest_asked, p, &p->guest_watch, &err), 0);
}

static int play_open(void **state) {
    static struct play p;
    struct err err;
    p = (struct play){.dir = scratch_new(), .loop = loop_new(&err), .spawner = -1};
    snprintf(p.host.place.run, sizeof(p.host.place.run), "%s", p.dir.path);
    p.host.loop = p.loop;
    p.host.boxes = -1;
    p.host.stats_end = &p.host.stats_first;
    listen_as_spawner(&p);
    p.host.spawner = spawner_link_new(p.loop, &p.host.place);
    make_box(&p);
    *state = &p;
    return 0;
}

static int play_close(void **state) {
    struct play *p = *state;
    if (p->box)
        machine_free(&p->box->m);
    spawner_link_free(p->host.spawner);
    loop_watch_free(p->guest_watch);
    loop_watch_free(p->spawner_watch);
    close_fd(&p->guest);
    close_fd(&p->spawner);
    close_fd(&p->listener);
    loop_free(p->loop);
    scratch_done(&p->dir);
    return 0;
}

static void answered(void *arg, const struct err *err) {
    struct play *p = arg;
    p->answers++;
    p->code = err ? err->code : 0;
    loop_stop(p->loop);
}

/* Between two looks nothing is asked of the guest, and the machine is in use all the same. */
static void a_halt_uses_its_machine_until_it_is_answered(void **state) {
    struct play *p = *state;
    assert_false(machine_is_asked(&p->box->m));
    machine_halt(&p->box->m, p->loop, answered, p);
    assert_true(p->box->m.calls == 1);
    unit_loop_run(p->loop, 60000);
    assert_true(p->answers == 1 && p->looks == 3);
    assert_int_equal(p->code, ERR_GONE);
    assert_int_equal(p->box->m.calls, 0);
}

static void a_freeze_uses_its_machine_until_it_is_answered(void **state) {
    struct play *p = *state;
    p->busy_for = 3;
    box_driver.freeze(&p->box->m, true, answered, p);
    assert_true(machine_is_asked(&p->box->m));
    unit_loop_run(p->loop, 60000);
    assert_true(p->answers == 1 && p->freezes == 4);
    assert_int_equal(p->code, ERR_NOT_FOUND);
    assert_false(machine_is_asked(&p->box->m));
}

static void a_request_to_the_guest_counts_until_it_is_answered(void **state) {
    struct play *p = *state;
    loop_watch_free(TAKE(p->guest_watch));
    box_driver.alone(&p->box->m, answered, p);
    assert_true(machine_is_asked(&p->box->m));
    close_fd(&p->guest);
    unit_loop_run(p->loop, 60000);
    assert_true(p->answers == 1 && p->code == ERR_GONE);
    assert_false(machine_is_asked(&p->box->m));
    /* One that is refused, for the guest is gone, is told of in the next turn. */
    guest_request(p->box->m.guest, (struct frame_head){.type = MSG_BUSY}, NULL, NULL, 0, NULL,
                  NULL);
    assert_true(machine_is_asked(&p->box->m));
}

UNIT_MAIN(cmocka_unit_test_setup_teardown(a_halt_uses_its_machine_until_it_is_answered, play_open,
                                          play_close),
          cmocka_unit_test_setup_teardown(a_freeze_uses_its_machine_until_it_is_answered, play_open,
                                          play_close),
          cmocka_unit_test_setup_teardown(a_request_to_the_guest_counts_until_it_is_answered,
                                          play_open, play_close))
