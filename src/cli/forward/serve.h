/*
 * One connection of a program of this host to a port of a machine, through the daemon. It is served
 * by a process of its own, so that a slow machine or client delays no other connection.
 */
#pragma once

#include <stdint.h>

/* Exit status of forward_serve(): the machine does not exist any more. */
enum { FORWARD_MACHINE_ENDED = 3 };

/* Descriptors of a program of this host, which do not block from now on: bytes of the program, and
 * bytes for it. Both are the same socket, or each is a pipe or a socket of its own. */
struct forward_ends {
    int in, out;
};

/* Connects a program of this host to a port of the machine and copies bytes both ways until both
 * sides have ended. Returns an exit status; errors are printed. */
int forward_serve(struct forward_ends ends, const char *machine, uint16_t port);
