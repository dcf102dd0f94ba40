/*
 * Connections: bytes in, frames out, and the other way round.
 *
 * A connection that breaks the protocol is closed and nothing else happens to
 * anyone. One whose peer does not read stops being read itself once its buffer
 * is full, so it holds up nobody but itself.
 */
#pragma once

#include "guest/guest.h"

/* Takes over the descriptor; NULL when all slots are taken (it is closed). */
struct conn *conn_open(struct guest *g, int fd, bool is_stream_only);
void conn_close(struct guest *g, struct conn *c);

/* Room for one more reply of any size? */
bool conn_has_room(const struct conn *c);

/* Queues one frame; the caller made sure of room. */
void guest_conn_send(struct conn *c, const struct frame_head *head, const void *msg);

/* The same with data that is already being written behind it: see msg_encode_before(). */
uint8_t *conn_tail(struct conn *c, const struct frame_head *head, const void *msg, uint32_t tail);

/* Replies to `to`, if it wants one. text is a literal. */
void conn_ok(struct conn *c, const struct frame *to, uint64_t value);

/* OK with a copy of the descriptor; `to` must have a tag. False: no descriptor is left (errno). */
bool conn_ok_with_fd(struct conn *c, const struct frame *to, int fd);
void guest_conn_refuse(struct conn *c, const struct frame *to, uint32_t code, const char *text);
void conn_fail(struct conn *c, const struct frame *to, int number, const char *text);

/* Handles frames that were held back, then sends what is queued. Called after every event. */
void conn_continue(struct guest *g, struct conn *c);
