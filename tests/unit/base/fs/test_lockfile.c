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

static void a_second_owner_is_told_who_has_it(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    char path[128], mine[24];
    struct lock_holder holder = {0};
    struct err err;
    bool is_taken;
    scratch_file(&dir, "lock", path);
    snprintf(mine, sizeof(mine), "%d", (int)getpid());
    int first DEFER_CLOSE = lockfile_take(path, "/some/home", &is_taken, &holder, &err);
    assert_true(first >= 0);
    assert_int_equal(lockfile_take(path, "/other", &is_taken, &holder, &err), -1);
    assert_true(is_taken);
    assert_string_equal(holder.pid, mine);
    assert_string_equal(holder.words, "/some/home");
    struct lock_holder read = {0};
    assert_int_equal(lockfile_read(path, &read), 0);
    assert_string_equal(read.words, "/some/home"); /* the loser wrote nothing */
}

static void it_is_free_when_its_owner_is_gone(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    char path[128];
    struct lock_holder holder = {0};
    struct err err;
    bool is_taken;
    scratch_file(&dir, "lock", path);
    pid_t pid = fork();
    if (pid == 0)
        _exit(lockfile_take(path, "a longer line than the next", &is_taken, &holder, &err) < 0);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    int fd DEFER_CLOSE = lockfile_take(path, "short", &is_taken, &holder, &err);
    assert_true(fd >= 0);
    assert_int_equal(lockfile_read(path, &holder), 0);
    assert_string_equal(holder.words, "short");
    /* Nothing of the line before it stays, for who looks into the file. */
    char text[128] = "", mine[64];
    snprintf(mine, sizeof(mine), "%d\nshort\n", (int)getpid());
    assert_true(pread(fd, text, sizeof(text) - 1, 0) > 0);
    assert_string_equal(text, mine);
}

static void a_file_that_nobody_wrote_has_no_holder(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    char path[128];
    struct lock_holder holder = {0};
    struct err err;
    bool is_taken;
    scratch_file(&dir, "lock", path);
    assert_int_equal(lockfile_read(path, &holder), -1);
    int raw DEFER_CLOSE = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(raw >= 0);
    assert_int_equal(flock(raw, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(lockfile_take(path, "", &is_taken, &holder, &err), -1);
    assert_string_equal(holder.pid, "unknown");
}

/* The owner is dead and not reaped yet; a child that it was about to start has the lock still. */
static void a_zombie_is_not_an_owner(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    char path[128];
    struct lock_holder holder = {0};
    struct err err;
    bool is_taken;
    siginfo_t info;
    scratch_file(&dir, "lock", path);
    pid_t pid = fork();
    if (pid == 0) {
        if (lockfile_take(path, "", &is_taken, &holder, &err) < 0)
            _exit(1);
        if (fork() == 0)
            usleep(50000);
        _exit(0);
    }
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    int fd DEFER_CLOSE = lockfile_take(path, "", &is_taken, &holder, &err);
    assert_true(fd >= 0);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

UNIT_MAIN(cmocka_unit_test(a_zombie_is_not_an_owner),
          cmocka_unit_test(a_second_owner_is_told_who_has_it),
          cmocka_unit_test(it_is_free_when_its_owner_is_gone),
          cmocka_unit_test(a_file_that_nobody_wrote_has_no_holder))
