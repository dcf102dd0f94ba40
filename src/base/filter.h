/*
 * A seccomp filter for workers that need few system calls. Other calls fail with EPERM. Calls of
 * another architecture kill the process. tgkill() works only on the worker itself, and commands of
 * fcntl() that could send signals are refused. openat() and open() only open existing files for
 * reading.
 */
#pragma once

#include <stddef.h>

enum { FILTER_CALLS_MAX = 64 };

/* Installs the filter permanently; set PR_SET_NO_NEW_PRIVS first. 0 or -errno. */
int filter_allow(const int *calls, size_t count);
