/*
 * The daemon's side of carrel-compare (src/compare): runs it and reads its records.
 *
 * It blocks: call it from a job, not from the loop. The records are untrusted.
 */
#pragma once

#include "compare/compare.h"

/*
 * Runs the worker and waits for it, at most COMPARE_MS and a little: for a job, not for the loop.
 * libexec: where it lies. userns: or -1. out: its records, whole.
 */
int compare_run(const char *libexec, const struct compare_order *o, const int *fds, size_t count,
                int userns, struct buf *out, struct err *err);
