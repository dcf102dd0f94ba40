/* Workers that read what machines wrote: what their filter leaves of calls that signal others or
 * change files. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <poll.h>
#include <seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
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

/* Calls that only x86-64 has and that no worker makes: kernel modules, ports, new processes,
 * descriptors that workers do not use, and calls that no kernel has any more. mknod could create
 * devices, and alarm, pause and time have no newer call of the same arguments. */
static const char *const unused[] = {
    "pause",         "alarm",          "fork",          "vfork",           "creat",
    "getpgrp",       "mknod",          "uselib",        "ustat",           "sysfs",
    "modify_ldt",    "_sysctl",        "iopl",          "ioperm",          "getpmsg",
    "putpmsg",       "security",       "create_module", "get_kernel_syms", "query_module",
    "tuxcall",       "time",           "vserver",       "set_thread_area", "get_thread_area",
    "epoll_create",  "eventfd",        "signalfd",      "inotify_init",    "afs_syscall",
    "epoll_ctl_old", "epoll_wait_old",
};

static const struct {
    const char *newer, *older;
} twins[] = {
#define TWIN(newer, older) {#newer, #older},
    FILTER_TWINS(TWIN)
#undef TWIN
};
enum { TWINS = sizeof(twins) / sizeof(*twins), X86_64_CALLS = 1024 };

static bool exists_on(uint32_t arch, const char *name) {
    return seccomp_syscall_resolve_name_arch(arch, name) >= 0;
}

static bool is_classified(const char *name) {
    for (size_t i = 0; i < TWINS; i++)
        if (strcmp(twins[i].older, name) == 0)
            return true;
    for (size_t i = 0; i < sizeof(unused) / sizeof(*unused); i++)
        if (strcmp(unused[i], name) == 0)
            return true;
    return false;
}

static void each_call_that_only_x86_64_has_is_a_twin_or_unused(void **state) {
    (void)state;
    size_t found = 0;
    for (int i = 0; i < X86_64_CALLS; i++) {
        char *name = seccomp_syscall_resolve_num_arch(AUDIT_ARCH_X86_64, i);
        if (name && !exists_on(AUDIT_ARCH_AARCH64, name)) {
            found++;
            if (!is_classified(name))
                fail_msg("call %s of x86-64 is neither a twin nor unused", name);
        }
        free(name);
    }
    assert_true(found > TWINS);
}

static void each_twin_has_a_newer_call_on_both_architectures(void **state) {
    (void)state;
    for (size_t i = 0; i < TWINS; i++) {
        assert_true(exists_on(AUDIT_ARCH_X86_64, twins[i].newer));
        assert_true(exists_on(AUDIT_ARCH_AARCH64, twins[i].newer));
        assert_true(exists_on(AUDIT_ARCH_X86_64, twins[i].older));
        assert_false(exists_on(AUDIT_ARCH_AARCH64, twins[i].older));
    }
}

/* In a child whose filter names newer calls only: functions of the C library, and older calls. */
static int try_functions(bool allowed) {
    static const int calls[] = {SYS_exit_group, SYS_ppoll,  SYS_faccessat,
                                SYS_readlinkat, SYS_openat, SYS_newfstatat};
    char target[8];
    struct stat st;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || filter_allow(calls, allowed ? 6 : 1) < 0)
        return 1;
    if (is_refused(poll(NULL, 0, 0)) == allowed)
        return 2;
    if (is_refused(access("/dev/null", R_OK)) == allowed)
        return 3;
    if (is_refused(readlink("/proc/self", target, sizeof(target))) == allowed)
        return 4;
    if (is_refused(stat("/dev/null", &st)) == allowed)
        return 5;
#ifdef SYS_open
    if (is_refused(syscall(SYS_open, "/dev/null", O_RDONLY)) == allowed)
        return 6;
    if (!is_refused(syscall(SYS_open, "/dev/null", O_WRONLY)))
        return 7;
#endif
    return 0;
}

static void functions_work_with_the_calls_of_either_architecture(void **state) {
    (void)state;
    if (UNIT_SANITIZED)
        skip();
    for (int allowed = 0; allowed < 2; allowed++) {
        int status = -1;
        pid_t pid = fork();
        if (pid == 0)
            _exit(try_functions(allowed));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
}

UNIT_MAIN(cmocka_unit_test(each_call_that_only_x86_64_has_is_a_twin_or_unused),
          cmocka_unit_test(each_twin_has_a_newer_call_on_both_architectures),
          cmocka_unit_test(functions_work_with_the_calls_of_either_architecture),
          cmocka_unit_test(a_worker_signals_nobody_but_itself_and_opens_nothing_for_writing),
          cmocka_unit_test(the_control_of_that_without_a_filter_it_could))
