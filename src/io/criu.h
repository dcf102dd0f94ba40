/*
 * Checks whether CRIU, which saves and restores processes, works on this host.
 *
 * The check runs a program and blocks for up to a few seconds: do not call it from the loop.
 */
#pragma once

#include "base/err.h"

/* 0: `criu check` passes. ERR_UNSUPPORTED has the error of criu. */
int criu_check(struct err *err);
