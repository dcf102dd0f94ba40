/*
 * Serial ports to the host (base/wire/port.h), for a guest inside a vm.
 *
 * A port has no end: when no host is connected, reads return 0 and poll() reports POLLIN and
 * POLLHUP for ever. So events are edge-triggered, a read of 0 bytes means "nothing now", and
 * nothing closes the connection of a port. When another host connects, or bytes were lost, the
 * connection starts anew.
 */
#pragma once

#include "base/wire/port.h"
#include "guest/guest.h"

/* Opens a connection over a descriptor of a port, which it then owns. NULL: no memory or slot. */
struct conn *serial_open(struct guest *g, int fd);

/*
 * Opens a connection over the port at `path`, now or once it exists. A path without '/' is the name
 * of a virtio port. It must stay valid. False: too many ports.
 */
bool serial_add(struct guest *g, const char *path);

/* Opens the device of a virtio port by its name, without waiting in reads and writes; or -1. */
int serial_find(const char *name);

/* Opens ports that did not exist yet. Returns when to call it again; INT64_MAX: never. */
int64_t serial_tick(struct guest *g, int64_t now);

struct serial *serial_new(void);

/* Takes the event of epoll: there may be bytes to read. */
void serial_wake(struct serial *s);

/* True if bytes wait that the port did not take. */
bool serial_waits(const struct serial *s);

/* Reads once. False: there is nothing to read now. */
bool serial_receive(struct serial *s, int fd);

/* As port_next(). */
enum port_got serial_next(struct serial *s, struct frame *ret);

/* Drops the packets that were not sent yet. */
void serial_forget(struct serial *s);

/* Ignores all frames until another host connects. */
void serial_shut(struct serial *s);

/* Sends the n bytes of whole frames, as far as the port takes them. Returns how many it took. */
size_t serial_send(struct serial *s, int fd, const uint8_t *frames, size_t n);

/* Gives back the memory of buffers that are empty. */
void serial_drop_pages(struct serial *s);
