#include "tests/unit/unit.h"

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/loop.h"

struct world {
    struct loop *loop;
    int fds[2];
    char text[32]; /* what happened, in order */
    struct loop_watch *watch;
    struct loop_timer *timer;
    struct loop_call a, b;
    pthread_t worker;
    unsigned events;
};

static void note(struct world *w, char what) {
    size_t n = strlen(w->text);
    if (n + 1 < sizeof(w->text))
        w->text[n] = what;
}

static int world_open(void **state) {
    static struct world w;
    struct err err;
    w = (struct world){.loop = loop_new(&err)};
    *state = &w;
    return w.loop ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, w.fds) : -1;
}

static int world_close(void **state) {
    struct world *w = *state;
    loop_watch_free(w->watch);
    loop_timer_free(w->timer);
    loop_free(w->loop);
    close(w->fds[0]);
    close(w->fds[1]);
    return 0;
}

static void an_empty_loop_returns(void **state) {
    struct world *w = *state;
    loop_run(w->loop);
}

static void read_one(void *arg, unsigned events) {
    struct world *w = arg;
    char c;
    w->events |= events;
    if (read(w->fds[0], &c, 1) == 1)
        note(w, c);
    else
        loop_stop(w->loop);
}

static void a_watch_tells_until_it_is_dealt_with(void **state) {
    struct world *w = *state;
    struct err err;
    assert_int_equal(loop_watch_new(w->loop, w->fds[0], LOOP_READ, read_one, w, &w->watch, &err),
                     0);
    assert_int_equal(write(w->fds[1], "xyz", 3), 3);
    shutdown(w->fds[1], SHUT_WR);
    loop_run(w->loop);
    assert_string_equal(w->text, "xyz");
    assert_int_equal(w->events, LOOP_READ);
}

static void saw_and_free(void *arg, unsigned events) {
    struct world *w = arg;
    w->events |= events;
    loop_watch_free(w->watch);
    w->watch = NULL;
}

static void a_watch_may_be_freed_in_its_own_callback(void **state) {
    struct world *w = *state;
    struct err err;
    assert_int_equal(
        loop_watch_new(w->loop, w->fds[0], LOOP_WRITE, saw_and_free, w, &w->watch, &err), 0);
    loop_run(w->loop);
    assert_int_equal(w->events, LOOP_WRITE);
}

static void a_hang_up_is_seen_without_reading(void **state) {
    struct world *w = *state;
    struct err err;
    assert_int_equal(
        loop_watch_new(w->loop, w->fds[0], LOOP_HANGUP, saw_and_free, w, &w->watch, &err), 0);
    assert_int_equal(write(w->fds[1], "unread", 6), 6);
    shutdown(w->fds[1], SHUT_WR);
    loop_run(w->loop);
    assert_int_equal(w->events, LOOP_HANGUP);
}

static void a_pipe_nobody_reads_is_an_error(void **state) {
    struct world *w = *state;
    struct err err;
    int p[2];
    assert_int_equal(pipe(p), 0);
    close(p[0]);
    assert_int_equal(loop_watch_new(w->loop, p[1], LOOP_HANGUP, saw_and_free, w, &w->watch, &err),
                     0);
    loop_run(w->loop);
    assert_int_equal(w->events, LOOP_ERROR);
    close(p[1]);
}

static void a_plain_file_cannot_be_watched(void **state) {
    struct world *w = *state;
    struct err err = {0};
    FILE *f = tmpfile();
    assert_int_equal(loop_watch_new(w->loop, fileno(f), LOOP_READ, read_one, w, &w->watch, &err),
                     -1);
    assert_int_equal(err.code, ERR_DENIED);
    fclose(f);
}

static void tick(void *arg) {
    struct world *w = arg;
    note(w, 't');
    if (strlen(w->text) == 3)
        loop_timer_stop(w->timer);
}

static void a_timer_repeats_until_stopped(void **state) {
    struct world *w = *state;
    w->timer = loop_timer_new(w->loop, tick, w);
    uint64_t before = loop_now_ms(w->loop);
    loop_timer_start(w->timer, 5, 5);
    loop_run(w->loop);
    assert_string_equal(w->text, "ttt");
    assert_true(loop_now_ms(w->loop) >= before + 10);
}

static void say_a(void *arg) {
    struct world *w = arg;
    note(w, 'a');
    if (strlen(w->text) < 3)
        loop_defer(w->loop, &w->a);
}

static void say_b(void *arg) {
    note(arg, 'b');
}

static void calls_are_made_in_order_and_once(void **state) {
    struct world *w = *state;
    w->a = (struct loop_call){.fn = say_a, .arg = w};
    w->b = (struct loop_call){.fn = say_b, .arg = w};
    loop_defer(w->loop, &w->a);
    loop_defer(w->loop, &w->b);
    loop_defer(w->loop, &w->a);
    loop_run(w->loop);
    assert_string_equal(w->text, "aba");
}

static void cancel_b(void *arg) {
    struct world *w = arg;
    note(w, 'c');
    loop_call_cancel(w->loop, &w->b);
}

static void a_cancelled_call_is_not_made(void **state) {
    struct world *w = *state;
    w->a = (struct loop_call){.fn = cancel_b, .arg = w};
    w->b = (struct loop_call){.fn = say_b, .arg = w};
    loop_defer(w->loop, &w->a);
    loop_defer(w->loop, &w->b);
    loop_run(w->loop);
    assert_string_equal(w->text, "c");
    loop_call_cancel(w->loop, &w->b);
}

static void remember_thread(void *arg) {
    struct world *w = arg;
    w->worker = pthread_self();
}

static void came_back(void *arg) {
    struct world *w = arg;
    note(w, pthread_equal(w->worker, pthread_self()) ? 'X' : 'd');
}

static void a_job_runs_elsewhere_and_comes_back(void **state) {
    struct world *w = *state;
    loop_work(w->loop, remember_thread, came_back, w);
    loop_run(w->loop);
    assert_string_equal(w->text, "d");
}

static void slow(void *arg) {
    (void)arg;
    usleep(20000);
}

static void note_done(void *arg) {
    note(arg, 'd');
}

static void freeing_the_loop_waits_for_jobs(void **state) {
    struct world *w = *state;
    for (int i = 0; i < 6; i++)
        loop_work(w->loop, slow, note_done, w);
    loop_free(w->loop);
    w->loop = NULL;
    assert_string_equal(w->text, "dddddd");
}

static void and_again(void *arg) {
    struct world *w = arg;
    note(w, 'd');
    loop_work(w->loop, slow, note_done, w);
}

static void joining_waits_for_jobs_that_jobs_begin(void **state) {
    struct world *w = *state;
    loop_join(w->loop);
    loop_work(w->loop, slow, and_again, w);
    loop_join(w->loop);
    assert_string_equal(w->text, "dd");
}

static void freeing_the_loop_closes_what_is_left(void **state) {
    struct world *w = *state;
    struct err err;
    struct loop_watch *left;
    struct loop_call call = {.fn = say_b, .arg = w};
    assert_int_equal(loop_watch_new(w->loop, w->fds[0], LOOP_READ, read_one, w, &left, &err), 0);
    loop_timer_start(loop_timer_new(w->loop, tick, w), 1, 1);
    loop_defer(w->loop, &call);
    loop_free(w->loop);
    w->loop = NULL;
    assert_string_equal(w->text, "");
}

static volatile uintptr_t handler_frame;

static void __attribute__((noinline)) note_frame(int signum) {
    (void)signum;
    handler_frame = (uintptr_t)__builtin_frame_address(0);
}

/* QEMU 7.2 calls x86-64 handlers on a stack that is not aligned, which libuv's does not survive. */
static bool handlers_work(void) {
    struct sigaction probe = {.sa_handler = note_frame}, before;
    sigaction(SIGUSR1, &probe, &before);
    raise(SIGUSR1);
    sigaction(SIGUSR1, &before, NULL);
    return handler_frame % 16 == 0;
}

static void stop_on_signal(void *arg, int signum) {
    struct world *w = arg;
    note(w, signum == SIGUSR1 ? 's' : '?');
    loop_stop(w->loop);
}

static void a_signal_is_a_callback(void **state) {
    struct world *w = *state;
    struct err err;
    if (!handlers_work())
        skip();
    assert_int_equal(loop_on_signal(w->loop, SIGUSR1, stop_on_signal, w, &err), 0);
    assert_int_equal(loop_on_signal(w->loop, SIGKILL, stop_on_signal, w, &err), -1);
    w->timer = loop_timer_new(w->loop, tick, w);
    loop_timer_start(w->timer, 10000, 0);
    kill(getpid(), SIGUSR1);
    loop_run(w->loop);
    assert_string_equal(w->text, "s");
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, world_open, world_close)

UNIT_MAIN(CASE(an_empty_loop_returns), CASE(a_watch_tells_until_it_is_dealt_with),
          CASE(a_watch_may_be_freed_in_its_own_callback), CASE(a_hang_up_is_seen_without_reading),
          CASE(a_pipe_nobody_reads_is_an_error), CASE(a_plain_file_cannot_be_watched),
          CASE(a_timer_repeats_until_stopped), CASE(calls_are_made_in_order_and_once),
          CASE(a_cancelled_call_is_not_made), CASE(a_job_runs_elsewhere_and_comes_back),
          CASE(freeing_the_loop_waits_for_jobs), CASE(joining_waits_for_jobs_that_jobs_begin),
          CASE(freeing_the_loop_closes_what_is_left), CASE(a_signal_is_a_callback))
