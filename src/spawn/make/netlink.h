/*
 * Builds and sends the netlink messages that a network namespace needs, without a library.
 *
 * Messages are built one after the other in a buffer of fixed size; netlink_send() fails if one did
 * not fit. The kernel acknowledges each message that has NLM_F_ACK.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NETLINK_MAX_BYTES = 4096 };

struct netlink {
    _Alignas(8) uint8_t bytes[NETLINK_MAX_BYTES];
    size_t used;
    size_t message; /* offset of the message that is being written */
    uint32_t count;
    unsigned answers; /* number of acknowledgements to wait for */
    bool full;
};

/*
 * Starts a message; `flags` are added to NLM_F_REQUEST. With NLM_F_ACK, netlink_send() waits for
 * the answer.
 */
void netlink_begin(struct netlink *n, uint16_t type, uint16_t flags, const void *body, size_t len);
void netlink_attr(struct netlink *n, uint16_t type, const void *bytes, size_t len);
void netlink_text(struct netlink *n, uint16_t type, const char *text);
void netlink_be32(struct netlink *n, uint16_t type, uint32_t value);
/* Starts an attribute that contains everything written until netlink_close(). */
size_t netlink_open(struct netlink *n, uint16_t type);
void netlink_close(struct netlink *n, size_t at);

/* Sends all messages over a new socket. Returns 0, or the first error as -errno. */
int netlink_send(const struct netlink *n, int protocol);
