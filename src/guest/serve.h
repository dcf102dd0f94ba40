/*
 * The table of messages: one function per message type.
 *
 * A message that does not decode ends the connection, not the guest.
 */
#pragma once

#include "guest/guest.h"

enum serve_result {
    SERVE_DONE,
    SERVE_STALLED, /* nothing happened yet: offer the same frame again later */
    SERVE_BROKEN,  /* the peer does not speak the protocol: close */
};

enum serve_result serve_frame(struct guest *g, struct conn *c, const struct frame *f);

/* In a handler: read the message of its kind (msg_get_kind) or give the connection up. */
#define SERVE_GET(kind, frame, msg)             \
    do {                                        \
        if (msg_get_##kind((frame), (msg)) < 0) \
            return SERVE_BROKEN;                \
    } while (0)
