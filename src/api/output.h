/*
 * The output of a command as a client gets it: whole in one result, as bytes, or as a stream of
 * events (NDJSON or SSE). All of them read the log at their client's pace.
 */
#pragma once

#include "api/call.h"
#include "service/exec/exec.h"

/* Each takes over the exec's reference and ends the call. */

/* Waits for the end, then one JSON result; max: bytes of each stream. */
void output_result(struct call *c, struct exec *x, uint64_t max);

/*
 * start, stdout, stderr, gap, exit; from those offsets on. Without follow: what is there now. Held,
 * the stream stays open behind the exit until its client closes it.
 */
struct output_from {
    uint64_t offset[2];
    bool follow, hold;
    bool silent; /* start and exit only */
};
void output_events(struct call *c, struct exec *x, const struct output_from *from);

/* One stream as bytes. */
struct output_range {
    int stream;
    uint64_t offset, limit; /* limit 0: none */
    bool follow;
};
void output_bytes(struct call *c, struct exec *x, const struct output_range *range);
