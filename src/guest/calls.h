/*
 * Calls of the command `carrel` in the machine: a socket that every program of the machine can
 * reach, without a network. The guest only passes words to the host and its answer back.
 *
 * The socket has an abstract name in the network namespace of the machine, which no other machine
 * shares. It takes one packet per connection. All sizes and counts are fixed, so callers can delay
 * only each other.
 */
#pragma once

#include "guest/serve.h"

/* "\0carrel": a name without a file. */
#define CALLS_NAME "carrel"

/* Opens the socket. Without it the machine works, but has no `carrel`. */
void calls_begin(struct guest *g);

/* Passes calls to the host that it has not got yet. Call it when a host has connected. */
void calls_offer(struct guest *g);

/* The connection to the host ends: its calls wait for the next one. */
void calls_forget(const struct conn *c);

enum serve_result calls_answer(struct guest *g, struct conn *c, const struct frame *f);
