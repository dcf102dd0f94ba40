#include "tests/unit/unit.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "machine/spawner.h"
#include "tests/unit/loops.h"
#include "tests/unit/scratch.h"

/* A spawner played by hand at the socket where the daemon looks for one. */
struct play {
    struct scratch dir;
    struct loop *loop;
    struct spawner_link *link;
    int listener, peer;
    unsigned answers;
    unsigned code; /* of the last one */
    enum plan_type type;
};

static void put_aside(struct play *p) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s/spawn.sock", p->dir.path);
    p->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(p->listener, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(p->listener, 1), 0);
}

static int play_open(void **state) {
    static struct play p;
    static struct place place;
    struct err err;
    p = (struct play){.dir = scratch_new(), .loop = loop_new(&err), .peer = -1};
    put_aside(&p);
    snprintf(place.run, sizeof(place.run), "%s", p.dir.path);
    p.link = spawner_link_new(p.loop, &place);
    *state = &p;
    return p.loop ? 0 : -1;
}

static int play_close(void **state) {
    struct play *p = *state;
    spawner_link_free(p->link);
    close_fd(&p->listener);
    close_fd(&p->peer);
    loop_free(p->loop);
    scratch_done(&p->dir);
    return 0;
}

static void answered(void *arg, const struct plan_message *m, struct fd_message *fds,
                     const struct err *err) {
    struct play *p = arg;
    (void)fds;
    p->answers++;
    p->type = m ? m->type : 0;
    p->code = err ? err->code : 0;
    loop_stop(p->loop);
}

/* When a request comes, the answer is of that type, and repeats its tag. */
struct reply {
    struct play *play;
    enum plan_type type;
};

static void serve(void *arg, unsigned events) {
    struct reply *r = arg;
    static char packet[PLAN_MAX_BYTES];
    static struct plan_message m, back;
    struct fd_message in = {0};
    struct err err;
    (void)events;
    if (recv_fds(r->play->peer, packet, sizeof(packet), &in) < 0 || !in.len)
        return;
    fd_message_close(&in);
    assert_int_equal(plan_decode(packet, in.len, &m, &err), 0);
    back = (struct plan_message){.type = r->type, .tag = m.tag, .error_code = ERR_BUSY};
    memcpy(back.plan.id, "m-aaaaaaaaaaaa", sizeof("m-aaaaaaaaaaaa"));
    assert_int_equal(send_fds(r->play->peer, packet, plan_encode(&back, packet), NULL, 0), 0);
}

static void on_connect(void *arg, unsigned events) {
    struct play *p = arg;
    (void)events;
    p->peer = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    loop_stop(p->loop);
}

static void only_the_answer_that_belongs_to_a_request_is_taken(void **state) {
    struct play *p = *state;
    struct err err;
    struct loop_watch *w = NULL;
    static struct plan_message m;
    assert_int_equal(loop_watch_new(p->loop, p->listener, LOOP_READ, on_connect, p, &w, &err), 0);
    unit_loop_run(p->loop, 60000);
    loop_watch_free(w);
    assert_true(p->peer >= 0);
    static const enum plan_type asked[] = {PLAN_STATUS, PLAN_LIST, PLAN_DESTROY, PLAN_STATS};
    struct reply reply = {.play = p};
    assert_int_equal(loop_watch_new(p->loop, p->peer, LOOP_READ, serve, &reply, &w, &err), 0);
    for (size_t i = 0; i < sizeof(asked) / sizeof(*asked); i++)
        for (reply.type = PLAN_CREATED; reply.type <= PLAN_VIEW_IS; reply.type++) {
            m = (struct plan_message){.type = asked[i]};
            memcpy(m.plan.id, "m-aaaaaaaaaaaa", sizeof("m-aaaaaaaaaaaa"));
            unsigned before = p->answers;
            spawner_ask(p->link, &m, NULL, 0, answered, p);
            unit_loop_run(p->loop, 60000);
            assert_int_equal(p->answers, before + 1);
            bool right = reply.type == plan_reply(asked[i]);
            assert_int_equal(p->type, right ? reply.type : 0);
            assert_int_equal(p->code, right                      ? 0
                                      : reply.type == PLAN_ERROR ? ERR_BUSY
                                                                 : ERR_INTERNAL);
        }
    loop_watch_free(w);
}

UNIT_MAIN(cmocka_unit_test_setup_teardown(only_the_answer_that_belongs_to_a_request_is_taken,
                                          play_open, play_close))
