/*
 * The seccomp filter of every box: an allow-list (syscalls.def) compiled once at start.
 *
 * Pid 1 loads the filter during its set-up, and every command inherits it; exec loads nothing.
 */
#pragma once

#include <linux/filter.h>

#include "base/err.h"

/* Builds the filter. ret->filter stays valid until the process exits. */
int filter_build(struct sock_fprog *ret, struct err *err);

/* Loads the filter for this process and its children, permanently. -errno on failure. */
int filter_load(const struct sock_fprog *filter);
