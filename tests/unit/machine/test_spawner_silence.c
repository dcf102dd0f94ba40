/* A spawner that is there and says nothing is told of, and is used again once it speaks. */
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/defer.h"
#include "machine/spawner.h"
#include "tests/unit/scratch.h"
#include "tests/unit/unit.h"

struct talk {
    struct loop *loop;
    struct spawner_link *link;
    int listener, conn;
    struct loop_watch *watch;
    struct loop_timer *again;
    enum err_code codes[2]; /* of what was asked while it was silent */
    unsigned count;
    bool spoke;
    char text[256], remedy[256];
};

static int listen_as_spawner(const struct place *p) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(a.sun_path, sizeof(a.sun_path), "%s/spawn.sock", p->run);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

static void answer_one(struct talk *t) {
    static struct plan_message m;
    static char packet[PLAN_MAX_BYTES];
    struct err err;
    ssize_t n = recv(t->conn, packet, sizeof(packet), 0);
    assert_true(n > 0);
    assert_int_equal(plan_decode(packet, (size_t)n, &m, &err), 0);
    assert_int_equal(m.type, PLAN_STATUS);
    m.type = PLAN_TEXT;
    snprintf(m.text, sizeof(m.text), "{}");
    size_t len = plan_encode(&m, packet);
    assert_int_equal(send(t->conn, packet, len, 0), len);
}

static void asked(void *arg, unsigned events) {
    (void)events;
    answer_one(arg);
}

static void ask(struct talk *t, spawner_answer_fn *done) {
    static struct plan_message m;
    m = (struct plan_message){.type = PLAN_STATUS};
    spawner_ask(t->link, &m, NULL, 0, done, t);
}

/* From now on it works: the answer to what failed long ago is the first that is heard of it. */
static void speak(struct talk *t) {
    struct err err;
    t->conn = accept(t->listener, NULL, NULL);
    assert_true(t->conn >= 0);
    assert_int_equal(loop_watch_new(t->loop, t->conn, LOOP_READ, asked, t, &t->watch, &err), 0);
    loop_timer_start(t->again, 10, 10);
}

static void recovered(void *arg, const struct plan_message *m, struct fd_message *fds,
                      const struct err *err) {
    struct talk *t = arg;
    (void)fds;
    t->spoke |= m != NULL;
    if (m)
        loop_stop(t->loop);
    else
        assert_int_equal(err->code, ERR_TIMEOUT);
}

static void ask_again(void *arg) {
    ask(arg, recovered);
}

static void answered(void *arg, const struct plan_message *m, struct fd_message *fds,
                     const struct err *err) {
    struct talk *t = arg;
    (void)fds;
    assert_null(m);
    t->codes[t->count++] = err->code;
    snprintf(t->text, sizeof(t->text), "%s", err->text);
    snprintf(t->remedy, sizeof(t->remedy), "%s", err->remedy);
    if (t->count == 1)
        ask(t, answered); /* fails at once */
    else
        speak(t);
}

static void a_silent_spawner_is_a_timeout_until_it_speaks(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct place place = {0};
    struct err err;
    struct talk t = {.conn = -1};
    snprintf(place.run, sizeof(place.run), "%s", dir.path);
    snprintf(place.home, sizeof(place.home), "%s", dir.path);
    snprintf(place.libexec, sizeof(place.libexec), "%s", dir.path);
    t.listener = listen_as_spawner(&place);
    t.loop = loop_new(&err);
    assert_non_null(t.loop);
    t.again = loop_timer_new(t.loop, ask_again, &t);
    t.link = spawner_link_new(t.loop, &place);
    spawner_link_set_silence(t.link, 300);
    ask(&t, answered);
    loop_run(t.loop);
    assert_int_equal(t.codes[0], ERR_TIMEOUT);
    assert_int_equal(t.codes[1], ERR_TIMEOUT);
    assert_non_null(strstr(t.text, "does not respond"));
    assert_non_null(strstr(t.remedy, "kill -CONT"));
    assert_true(t.spoke);
    spawner_link_free(t.link);
    loop_timer_free(t.again);
    loop_watch_free(t.watch);
    loop_freep(&t.loop);
    close(t.conn);
    close(t.listener);
}

UNIT_MAIN(cmocka_unit_test(a_silent_spawner_is_a_timeout_until_it_speaks))
