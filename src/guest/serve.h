/*
 * The table of messages: one function per message type.
 *
 * A message that does not decode ends the connection, not the guest.
 */
#pragma once

#include "guest/guest.h"

enum serve_result {
    SERVE_DONE,
    SERVE_STALLED, /* the message cannot be handled yet: pass the same frame again later */
    SERVE_BROKEN,  /* the peer broke the protocol: close the connection */
};

enum serve_result serve_frame(struct guest *g, struct conn *c, const struct frame *f);

/* For handlers: decodes the message with msg_get_KIND, or returns SERVE_BROKEN. */
#define SERVE_GET(kind, frame, msg)             \
    do {                                        \
        if (msg_get_##kind((frame), (msg)) < 0) \
            return SERVE_BROKEN;                \
    } while (0)
