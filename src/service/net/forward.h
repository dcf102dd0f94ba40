/*
 * TCP connections from this host to ports inside machines, for `carrel forward`; and connections to
 * the serial consoles of vms, for `carrel serial`.
 *
 * Whoever may run commands in a machine may connect to its ports: both give the same access. So
 * these connections need no token of their own, unlike exposed ports.
 */
#pragma once

#include "service/service.h"

enum { FORWARDS_MAX = 256 }; /* connections to one machine */

struct forward;

/* Receives a connected socket, or the error. The callee owns fd, and `f` until
 * service_forward_over(). */
typedef void service_forward_fn(void *arg, struct forward *f, int fd, const struct err *err);

/* Connects to a port of the machine's loopback interface; wakes the machine first if it rests. */
void service_forward(struct service *s, const struct caller *who, const char *machine,
                     uint16_t port, service_forward_fn *done, void *arg);
/*
 * Connects to the serial console of a vm: the socket gets what the vm writes from this offset on,
 * or from the oldest byte that is kept, after a line with the offset of the first byte. What is
 * sent is typed.
 */
void service_serial(struct service *s, const struct caller *who, const char *machine,
                    uint64_t offset, service_forward_fn *done, void *arg);
/* The connection has ended. */
void service_forward_over(struct forward *f);
