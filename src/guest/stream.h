/*
 * One direction of a command's stdio: a non-blocking descriptor on one side, frames on the other,
 * and a ring buffer between them. Neither side waits for the other. If the ring is full, the guest
 * stops reading, so the command is blocked. Output may go into a log instead of ring and frames.
 */
#pragma once

#include "guest/guest.h"

/*
 * Reads available output into the ring, or into the log, which is never full. False: out of memory
 * for the ring.
 */
bool stream_out_fill(struct guest *g, struct stream_out *s);

/* Call it when the command has exited: later output is not copied to the host's pipe. */
void stream_out_copy_stop(struct stream_out *s);

/*
 * Call it when nobody reads the host's pipe any more. It closes the pipe of a running command,
 * whose next write then fails, as if it had the host's pipe itself.
 */
void stream_out_copy_unread(struct guest *g, struct stream_out *s);

/* Copies up to max unsent bytes to `to` and counts them as sent. */
uint32_t stream_out_take(struct stream_out *s, uint8_t *to, uint32_t max);
bool stream_out_has_news(const struct stream_out *s);

/*
 * Call it when the host has consumed the output up to this offset. False: the offset is larger than
 * possible.
 */
bool stream_out_credit(struct stream_out *s, uint64_t consumed);

/* Adds input from the host. False: it exceeds the window, or does not follow the previous input. */
bool stream_in_add(struct guest *g, struct stream_in *s, const struct msg_data *data, bool eof);
void stream_in_push(struct guest *g, struct stream_in *s);

/* True if the host should be told how much the command has read. */
bool stream_in_owes_credit(const struct stream_in *s);

void stream_in_close(struct guest *g, struct stream_in *s);
void stream_out_close(struct guest *g, struct stream_out *s);
