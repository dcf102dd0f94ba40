/*
 * Writes to a pipe of the host without waiting.
 *
 * The caller of a command uses the same open file, so O_NONBLOCK would change the caller's own
 * writes. Bytes go through a pipe of the guest instead, from which splice(2) moves them.
 */
#pragma once

#include <sys/uio.h>

#include "guest/guest.h"

/* Opens the guest's own pipe, unless it is open. -1 with errno on failure. */
int relay_open(struct guest *g);

/*
 * Writes some of the bytes and returns how many. -1 with errno: EAGAIN if the pipe is full, EPIPE
 * if nobody reads it.
 */
ssize_t relay_write(struct guest *g, int to, const struct iovec *v, int pieces);
