/* What a worker can open once it is in its jail. The jail stays, so each attempt is a child. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/native.h"
#include "image/jail.h"

static char place[32];

static int place_make(void **state) {
    char path[64];
    (void)state;
    snprintf(place, sizeof(place), "/tmp/test-jail-XXXXXX");
    if (!mkdtemp(place))
        return -1;
    snprintf(path, sizeof(path), "%s/file", place);
    int fd DEFER_CLOSE = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    return fd < 0 ? -1 : 0;
}

static int place_delete(void **state) {
    static const char *const names[] = {"file", "new", "new2"};
    char path[64];
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        snprintf(path, sizeof(path), "%s/%s", place, names[i]);
        unlink(path);
    }
    return rmdir(place);
}

struct attempt {
    const char *path;
    int flags;
    bool by_openat2;
};

static int attempt_open(const struct attempt *a) {
    struct open_how how = {.flags = (uint64_t)a->flags,
                           .mode = a->flags & (O_CREAT | O_TMPFILE) ? 0600 : 0};
    if (!a->by_openat2)
        return openat(AT_FDCWD, a->path, a->flags, 0600);
    return (int)syscall(SYS_openat2, AT_FDCWD, a->path, &how, sizeof(how));
}

/* The error of the attempt in a jail, or 0. */
static int attempt_in_jail(const struct attempt *a, bool reading) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        struct err err;
        int dir = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if ((reading ? jail_enter_reading(dir, dir, geteuid() == 0, &err)
                     : jail_enter(dir, dir, &err)) < 0)
            _exit(255);
        _exit(attempt_open(a) < 0 ? errno : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_not_equal(WEXITSTATUS(status), 255);
    return WEXITSTATUS(status);
}

static const struct attempt attempts[] = {
    {"file", O_WRONLY, false},
    {"file", O_RDWR, false},
    {"file", O_WRONLY | O_APPEND, false},
    {"file", O_RDONLY | O_TRUNC, false},
    {"new", O_RDONLY | O_CREAT, false},
    {".", O_TMPFILE | O_RDWR, false},
    {"file", O_WRONLY, true},
    {"new2", O_WRONLY | O_CREAT, true},
};
enum { ATTEMPTS = sizeof(attempts) / sizeof(*attempts) };

static void jail_test_need(void) {
    if (geteuid() != 0 || INSTRUMENTED)
        skip(); /* only root changes its root; a sanitizer needs more system calls */
}

static void a_reading_worker_opens_no_file_for_writing(void **state) {
    (void)state;
    jail_test_need();
    for (size_t i = 0; i < ATTEMPTS; i++)
        assert_int_equal(attempt_in_jail(&attempts[i], true), ENOSYS);
    static const struct attempt reads[] = {
        {"file", O_RDONLY, false}, {".", O_RDONLY | O_DIRECTORY, false}, {"file", O_PATH, false}};
    for (size_t i = 0; i < sizeof(reads) / sizeof(*reads); i++)
        assert_int_equal(attempt_in_jail(&reads[i], true), 0);
}

/* The control: where files are written, each of these attempts works. */
static void a_worker_that_unpacks_opens_files_for_writing(void **state) {
    (void)state;
    jail_test_need();
    for (size_t i = 0; i < ATTEMPTS; i++)
        assert_int_equal(attempt_in_jail(&attempts[i], false), 0);
}

UNIT_MAIN(cmocka_unit_test_setup_teardown(a_reading_worker_opens_no_file_for_writing, place_make,
                                          place_delete),
          cmocka_unit_test_setup_teardown(a_worker_that_unpacks_opens_files_for_writing, place_make,
                                          place_delete))
