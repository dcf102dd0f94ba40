/*
 * A filter of system calls for workers that need few: these, and whatever else is asked for is
 * refused with EPERM. Another processor's calls kill. tgkill() is for the worker itself, and
 * fcntl() has no command that sends signals.
 */
#pragma once

#include <stddef.h>

enum { FILTER_CALLS_MAX = 64 };

/* From here on, for good; PR_SET_NO_NEW_PRIVS comes before it. -errno. */
int filter_allow(const int *calls, size_t count);
