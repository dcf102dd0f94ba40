/*
 * One direction of a command's stdio: a non-blocking descriptor on one side, a
 * ring, and frames on the other. Neither side ever waits for the other here; a
 * full ring simply stops the reading, so back-pressure reaches the command. Output
 * may go into a log instead of ring and frames.
 */
#pragma once

#include "guest/guest.h"

/*
 * Reads what is there into the ring, or into the log, which is never full. False: there
 * was no memory for the ring.
 */
bool stream_out_fill(struct guest *g, struct stream_out *s);

/* Copies up to max unsent bytes to `to` and counts them as sent. */
uint32_t stream_out_take(struct stream_out *s, uint8_t *to, uint32_t max);
bool stream_out_has_news(const struct stream_out *s);

/* The host has consumed up to here. False: it claims what was never there. */
bool stream_out_credit(struct stream_out *s, uint64_t consumed);

/* Takes bytes of the host. False: they are beyond the window, or leave a gap. */
bool stream_in_add(struct guest *g, struct stream_in *s, const struct msg_data *data, bool eof);
void stream_in_push(struct guest *g, struct stream_in *s);

/* Is it time to tell the host how far the command has read? */
bool stream_in_owes_credit(const struct stream_in *s);

void stream_in_close(struct guest *g, struct stream_in *s);
void stream_out_close(struct guest *g, struct stream_out *s);
