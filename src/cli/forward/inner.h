/*
 * Parts of `carrel forward`: each accepted connection is served by a process of its own, so that a
 * slow machine or client delays no other connection.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Exit status of forward_serve(): the machine does not exist any more. */
enum { FORWARD_MACHINE_ENDED = 3 };

/* Connects an accepted socket to a port of the machine and copies bytes both ways until both sides
 * have ended. Returns an exit status; errors are printed. */
int forward_serve(int sock, const char *machine, uint16_t port);

/*
 * Whether the process at the other end of this TCP connection on our own host belongs to our user.
 * The kernel's table of connections says so. A process that has closed its end already counts as
 * somebody else's.
 */
bool forward_peer_is_ours(int sock);
