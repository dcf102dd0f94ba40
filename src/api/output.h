/* Sends the output of a command: as one result, as bytes, or as a stream of events (NDJSON or SSE).
 * Each reader reads the log at the pace of its client, so a slow client never blocks a command.
 */
#pragma once

#include "api/call.h"
#include "service/exec/exec.h"

/* Each function takes over the reference to the exec (the command) and ends the call. */

/* Waits until the command ends, then sends one JSON result; max: bytes of each stream. */
void output_result(struct call *c, struct exec *x, uint64_t max);

/* Sends the events start, stdout, stderr, gap and exit. follow: wait for new output.
 * hold: keep the stream open after exit until the client closes it.
 */
struct output_from {
    uint64_t offset[2];
    bool follow, hold;
    bool silent; /* send only start and exit */
};
void output_events(struct call *c, struct exec *x, const struct output_from *from);

/* Sends one stream as bytes. */
struct output_range {
    int stream;
    uint64_t offset, limit; /* limit 0: unlimited */
    bool follow;
};
void output_bytes(struct call *c, struct exec *x, const struct output_range *range);
