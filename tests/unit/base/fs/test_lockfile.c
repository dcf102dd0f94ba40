/* One owner at a time, who can be named, and no lock that outlives its owner. */
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/lockfile.h"
#include "tests/unit/scratch.h"
#include "tests/unit/unit.h"

/* A lock in a folder of its own, and the answer to the last attempt to take it. */
static struct {
    struct scratch dir;
    char path[128];
    struct lock_holder holder;
    bool is_taken;
} lock;

static int set_up(void **state) {
    (void)state;
    memset(&lock, 0, sizeof(lock));
    lock.dir = scratch_new();
    scratch_file(&lock.dir, "lock", lock.path);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    scratch_done(&lock.dir);
    return 0;
}

static int take(const char *words) {
    struct err err;
    return lockfile_take(lock.path, words, &lock.is_taken, &lock.holder, &err);
}

static void a_second_owner_is_told_who_has_it(void **state) {
    (void)state;
    char mine[24];
    snprintf(mine, sizeof(mine), "%d", (int)getpid());
    int first DEFER_CLOSE = take("/some/home");
    assert_true(first >= 0);
    assert_int_equal(take("/other"), -1);
    assert_true(lock.is_taken);
    assert_string_equal(lock.holder.pid, mine);
    assert_string_equal(lock.holder.words, "/some/home");
    struct lock_holder read = {0};
    assert_int_equal(lockfile_read(lock.path, &read), 0);
    assert_string_equal(read.words, "/some/home"); /* the loser wrote nothing */
}

static void it_is_free_when_its_owner_is_gone(void **state) {
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        _exit(take("a longer line than the next") < 0);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    int fd DEFER_CLOSE = take("short");
    assert_true(fd >= 0);
    assert_int_equal(lockfile_read(lock.path, &lock.holder), 0);
    assert_string_equal(lock.holder.words, "short");
    /* Nothing of the line before it stays, for who looks into the file. */
    char text[128] = "", mine[64];
    snprintf(mine, sizeof(mine), "%d\nshort\n", (int)getpid());
    assert_true(pread(fd, text, sizeof(text) - 1, 0) > 0);
    assert_string_equal(text, mine);
}

static void a_file_that_nobody_wrote_has_no_holder(void **state) {
    (void)state;
    assert_int_equal(lockfile_read(lock.path, &lock.holder), -1);
    int raw DEFER_CLOSE = open(lock.path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(raw >= 0);
    assert_int_equal(flock(raw, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(take(""), -1);
    assert_string_equal(lock.holder.pid, "unknown");
}

/* The owner is dead and not reaped yet; a child that it was about to start has the lock still. */
static void a_zombie_is_not_an_owner(void **state) {
    (void)state;
    siginfo_t info;
    pid_t pid = fork();
    if (pid == 0) {
        if (take("") < 0)
            _exit(1);
        if (fork() == 0)
            usleep(50000);
        _exit(0);
    }
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    int fd DEFER_CLOSE = take("");
    assert_true(fd >= 0);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
UNIT_MAIN(TEST(a_zombie_is_not_an_owner), TEST(a_second_owner_is_told_who_has_it),
          TEST(it_is_free_when_its_owner_is_gone), TEST(a_file_that_nobody_wrote_has_no_holder))
