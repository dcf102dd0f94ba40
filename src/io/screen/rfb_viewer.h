/*
 * The server side of RFB 3.8 for a viewer of a desktop, in front of the machine's own server.
 *
 * Neither side gets a byte of the other one that was not read and understood: the handshake is
 * Carrel's own, and of a viewer's messages only keys, the pointer and questions for pixels go to
 * the machine. Its pixel format must be the one of rfb.h, its list of encodings is dropped since
 * there is only one, and so is its clipboard. Pure: no descriptors, no time.
 */
#pragma once

#include "io/screen/rfb.h"

struct rfb_viewer;

/* server: after its handshake; it must outlive the viewer. to: for the viewer. */
struct rfb_viewer *rfb_viewer_new(struct rfb *server, struct buf *to);
void rfb_viewer_free(struct rfb_viewer *v);

/* Takes bytes of the viewer. -1: it broke the protocol or a limit, and no more may be passed. */
int rfb_viewer_take(struct rfb_viewer *v, const uint8_t *bytes, size_t n, struct err *err);
