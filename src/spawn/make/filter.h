/*
 * The seccomp filter of every box: an allow-list (syscalls.def) compiled once at start.
 *
 * It is loaded by pid 1's set-up and inherited by every command; nothing is loaded per exec.
 */
#pragma once

#include <linux/filter.h>

#include "base/err.h"

/* ret->filter is valid as long as the process. */
int filter_build(struct sock_fprog *ret, struct err *err);

/* For this process and its children, permanently. -errno on failure. */
int filter_load(const struct sock_fprog *filter);
