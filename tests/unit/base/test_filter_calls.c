/* Workers that read what machines wrote: what their filter leaves of calls that signal others or
 * change files. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/filter.h"

static bool is_refused(long r) {
    return r == -1 && errno == EPERM;
}

/* In a child: what it may do to its parent, and to itself. 0: all is as it should be. */
static int try_all(pid_t other, bool filtered) {
    static const int calls[] = {SYS_tgkill, SYS_fcntl, SYS_openat, SYS_exit_group, SYS_exit};
    static const int writes[] = {O_WRONLY, O_RDWR, O_RDONLY | O_TRUNC, O_RDONLY | O_CREAT};
    int fd = open("/dev/null", O_RDONLY);
    pid_t self = getpid();
    if (filtered && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || filter_allow(calls, 5) < 0))
        return 1;
    /* Signal 0 asks whether it could. */
    if (is_refused(syscall(SYS_tgkill, other, other, 0)) != filtered)
        return 2;
    if (is_refused(syscall(SYS_fcntl, fd, F_SETOWN, other)) != filtered ||
        is_refused(syscall(SYS_fcntl, fd, F_SETSIG, 0)) != filtered)
        return 3;
    if (syscall(SYS_tgkill, self, self, 0) != 0)
        return 4;
    if (syscall(SYS_fcntl, fd, F_GETFL) < 0 || syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3) < 0)
        return 5;
    for (size_t i = 0; i < sizeof(writes) / sizeof(*writes); i++)
        if (is_refused(syscall(SYS_openat, AT_FDCWD, "/dev/null", writes[i], 0)) != filtered)
            return 6;
    if (syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY | O_CLOEXEC | O_NOFOLLOW) < 0)
        return 7;
    return is_refused(syscall(SYS_getuid)) == filtered ? 0 : 8;
}

static int outcome(bool filtered) {
    pid_t parent = getpid(), pid = fork();
    int status = -1;
    if (pid == 0)
        _exit(try_all(parent, filtered));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void a_worker_signals_nobody_but_itself_and_opens_nothing_for_writing(void **state) {
    (void)state;
    if (UNIT_SANITIZED) {
        print_message("the filter refuses calls of the sanitizer itself\n");
        skip();
    }
    assert_int_equal(outcome(true), 0);
}

static void the_control_of_that_without_a_filter_it_could(void **state) {
    (void)state;
    assert_int_equal(outcome(false), 0);
}

UNIT_MAIN(cmocka_unit_test(a_worker_signals_nobody_but_itself_and_opens_nothing_for_writing),
          cmocka_unit_test(the_control_of_that_without_a_filter_it_could))
