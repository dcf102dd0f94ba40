/*
 * The daemon's side of carrel-compare (src/compare): runs it and reads its records.
 *
 * compare_run() blocks: call it from a job, not from the loop. The records are untrusted.
 */
#pragma once

#include "compare/compare.h"

/*
 * Runs carrel-compare and waits for it, a little longer than COMPARE_MS at most. libexec: directory
 * of the program. userns: user namespace of the ids on disk, or -1. out: all records.
 */
int compare_run(const char *libexec, const struct compare_order *o, const int *fds, size_t count,
                int userns, struct buf *out, struct err *err);
