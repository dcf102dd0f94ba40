/*
 * A seccomp filter for workers that need few system calls. Other calls fail with EPERM. Calls of
 * another architecture kill the process. tgkill() works only on the worker itself, and commands of
 * fcntl() that could send signals are refused. openat() and open() only open existing files for
 * reading. Names are those of newer calls; see FILTER_TWINS.
 */
#pragma once

#include <stddef.h>

/*
 * Older system calls that x86-64 has besides the newer one of the same effect. Other architectures
 * have the newer one only. The C library uses either, so a filter that allows the newer call allows
 * the older ones too: poll() is the call ppoll on aarch64, and the call poll on x86-64.
 */
#define FILTER_TWINS(X)        \
    X(ppoll, poll)             \
    X(pselect6, select)        \
    X(epoll_pwait, epoll_wait) \
    X(openat, open)            \
    X(newfstatat, stat)        \
    X(newfstatat, lstat)       \
    X(faccessat, access)       \
    X(readlinkat, readlink)    \
    X(getdents64, getdents)    \
    X(dup3, dup2)              \
    X(pipe2, pipe)             \
    X(renameat, rename)        \
    X(mkdirat, mkdir)          \
    X(unlinkat, unlink)        \
    X(unlinkat, rmdir)         \
    X(linkat, link)            \
    X(symlinkat, symlink)      \
    X(fchmodat, chmod)         \
    X(fchownat, chown)         \
    X(fchownat, lchown)        \
    X(utimensat, utime)        \
    X(utimensat, utimes)       \
    X(utimensat, futimesat)    \
    X(set_tid_address, arch_prctl)

enum { FILTER_CALLS_MAX = 64 };

/* Installs the filter permanently; set PR_SET_NO_NEW_PRIVS first. 0 or -errno. */
int filter_allow(const int *wanted, size_t count);
