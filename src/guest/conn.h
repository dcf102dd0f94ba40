/*
 * Connections: turn received bytes into frames, and frames to send into bytes.
 *
 * A connection that breaks the protocol is closed; others are not affected. If a peer does not
 * read, its output buffer fills up. The guest then reads nothing more from that peer, so it delays
 * only itself.
 */
#pragma once

#include "guest/guest.h"

/*
 * Opens a connection, which then owns the descriptor. NULL: all slots for connections are in use,
 * and the descriptor is closed. The connection of a serial port (guest/serial.h) never closes.
 */
struct conn *conn_open(struct guest *g, int fd, bool is_serial);
void conn_close(struct guest *g, struct conn *c);

/* True if the output buffer has room for one more reply of any size. */
bool conn_has_room(const struct conn *c);

/* Queues one frame. The caller must have checked conn_has_room(). */
void guest_conn_send(struct conn *c, const struct frame_head *head, const void *msg);

/*
 * Queues a frame with `tail` bytes of data, which the caller writes to the returned address: see
 * msg_encode_before().
 */
uint8_t *conn_tail(struct conn *c, const struct frame_head *head, const void *msg, uint32_t tail);

/*
 * conn_ok(), guest_conn_refuse() and conn_fail() reply to the frame `to`, if it has a tag. text: a
 * string literal.
 */
void conn_ok(struct conn *c, const struct frame *to, uint64_t value);

/* Replies OK with a copy of fd; `to` must have a tag. False with errno: no descriptor is free. */
bool conn_ok_with_fd(struct conn *c, const struct frame *to, int fd);
void guest_conn_refuse(struct conn *c, const struct frame *to, uint32_t code, const char *text);
void conn_fail(struct conn *c, const struct frame *to, int number, const char *text);

/* Gives back the memory of both buffers, if they are empty. */
void conn_drop_pages(struct conn *c);

/* Handles frames that had to wait, then sends queued frames. Called after every event. */
void conn_continue(struct guest *g, struct conn *c);
