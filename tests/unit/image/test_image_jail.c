/* The jails of carrel-image, attacked from inside. Each attack is run outside first: it must work
 * there. */
#include "tests/unit/scratch.h"
#include "tests/unit/unit.h"

#include <pthread.h>
#include <sys/wait.h>

#include "base/defer.h"
#include "image/jail.h"

typedef int enter_fn(int dir, int last, struct err *err);

static int enter_none(int dir, int last, struct err *e) {
    (void)dir, (void)last, (void)e;
    return 0;
}

static void *thread_main(void *arg) {
    return arg;
}

static int make_thread(void) {
    pthread_t t;
    int token = 0;
    void *back = NULL;
    return pthread_create(&t, NULL, thread_main, &token) == 0 && pthread_join(t, &back) == 0 &&
                   back == &token
               ? 0
               : 1;
}

static int make_process(void) {
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    return pid > 0 ? 0 : 1;
}

static int make_dir(void) {
    return mkdirat(AT_FDCWD, "new", 0700) == 0 ? 0 : 1;
}

enum { OUTSIDE = 125 };

/* The exit status of a child that does `act` in a jail. OUTSIDE: it could not enter. */
static int status_in(enter_fn *enter, int (*act)(void)) {
    struct scratch at DEFER(scratch_done) = scratch_new();
    int dir DEFER_CLOSE = scratch_open(&at), status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        struct err e;
        if (fchdir(dir) < 0 || enter(dir, dir, &e) < 0)
            _exit(OUTSIDE);
        _exit(act());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int enter_threads(int dir, int last, struct err *err) {
    return jail_enter_threads(dir, last, false, err);
}

static int act_nothing(void) {
    return 0;
}

/* Not as root, under valgrind or on an emulated CPU there is no jail. Sanitizers have no filter. */
static void need_jail(void) {
    if (UNIT_SANITIZED || geteuid() != 0 || getenv("LD_PRELOAD") ||
        status_in(jail_enter, act_nothing) == OUTSIDE)
        skip();
}

static void every_attack_works_outside(void **state) {
    (void)state;
    assert_int_equal(status_in(enter_none, make_thread), 0);
    assert_int_equal(status_in(enter_none, make_process), 0);
    assert_int_equal(status_in(enter_none, make_dir), 0);
}

static void a_jail_without_threads_refuses_threads_and_processes(void **state) {
    (void)state;
    need_jail();
    assert_int_equal(status_in(jail_enter, make_thread), 1);
    assert_int_equal(status_in(jail_enter, make_process), 1);
    assert_int_equal(status_in(jail_enter, make_dir), 0);
}

static void a_jail_with_threads_refuses_processes_and_changes(void **state) {
    (void)state;
    need_jail();
    assert_int_equal(status_in(enter_threads, make_thread), 0);
    assert_int_equal(status_in(enter_threads, make_process), 1);
    assert_int_equal(status_in(enter_threads, make_dir), 1);
}

UNIT_MAIN(cmocka_unit_test(every_attack_works_outside),
          cmocka_unit_test(a_jail_without_threads_refuses_threads_and_processes),
          cmocka_unit_test(a_jail_with_threads_refuses_processes_and_changes))
