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

/* Receives the archive and the list of COMPARE_PACK, piece by piece. -1 with *err ends the run. */
struct compare_sink {
    void *arg;
    int (*archive)(void *arg, const void *bytes, size_t n, struct err *err);
    int (*list)(void *arg, const void *bytes, size_t n, struct err *err);
};

/*
 * Packs the changes in a granted directory (COMPARE_PACK) and waits for the end, a little longer
 * than COMPARE_PACK_MS at most. upper: the directory of the changes; disk: the disk that has it.
 */
int compare_pack_run(const char *libexec, int upper, int disk, int userns,
                     const struct compare_sink *sink, struct err *err);
