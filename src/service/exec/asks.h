/*
 * Requests of programs in cell machines that only the daemon can carry out: carrel.1.http.request
 * and carrel.1.model.ask.
 *
 * A command has a socket to the daemon (base/cell_command.h), and sends one request at a time. The
 * worker at its other end is untrusted, as if it had been taken over: every request is checked
 * against the present capabilities of the machine, sizes have a cap, and requests go through the
 * gate of the machine with its rules, secrets, approvals and records.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct asks;
struct live;

/* True if the machine has one of these capabilities that needs the daemon. */
bool asks_are_allowed(const struct live *l, uint32_t only);
/*
 * Makes the socket of a command and returns the end of the worker, which the caller closes. The
 * daemon's end belongs to the machine, and closes when the worker closes its end. only: the
 * capabilities of the command, of those that the machine has (bits of base/capability.h).
 */
int asks_open(struct live *l, uint32_t only, struct err *err);
/* Frees all sockets of a machine. */
void asks_free_all(struct asks *first);
