/*
 * The host's end of a serial port (base/wire/port.h): turns queued frames into packets and received
 * bytes into frames. guest_link uses it in place of a socket that can pass descriptors.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/wire/frame.h"

struct link_port;

/* Begins a connection with a random nonce. */
struct link_port *link_port_new(void);
void link_port_free(struct link_port *p);

/* Bytes of packets that wait to be sent. */
size_t link_port_backlog(const struct link_port *p);

/*
 * Sends as much as the socket takes of the n bytes of whole frames at `frames`, and of what waits
 * already. Returns how many bytes of the frames were taken, -1 with *err.
 */
ssize_t link_port_send(struct link_port *p, int sock, const void *frames, size_t n,
                       struct err *err);

/* Works like recv(2). */
ssize_t link_port_receive(struct link_port *p, int sock, int flags);

/* 1: *ret is a frame; 0: none yet; -1: the connection is broken (`gone`). */
int link_port_next(struct link_port *p, struct frame *ret, struct err *err);
