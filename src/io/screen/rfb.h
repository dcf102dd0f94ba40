/*
 * The client side of RFB 3.8, the protocol of VNC, as functions from bytes to bytes.
 *
 * The server is a program of a machine, so every size, rectangle and message is checked. It may
 * send little more than what was asked for. Only the security type None and raw pixels are used,
 * and text of the clipboard is skipped. Pixels go to a picture (rfb_ask) or to a viewer (rfb_want).
 * Pure: no descriptors, no time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    RFB_SIDE_MAX = 4096,
    RFB_PIXELS_MAX = 3840 * 2160,
    RFB_PIXEL_BYTES = 4, /* red, green, blue, and a byte without meaning */
    RFB_OUT_MAX = 256 << 10,
};

enum rfb_button {
    RFB_LEFT = 1,
    RFB_MIDDLE = 2,
    RFB_RIGHT = 4,
    RFB_WHEEL_UP = 8,
    RFB_WHEEL_DOWN = 16,
    RFB_WHEEL_LEFT = 32,
    RFB_WHEEL_RIGHT = 64,
};

struct rfb;

struct rfb *rfb_new(void);
void rfb_free(struct rfb *r);

/* Takes bytes of the server. -1: it broke the protocol or a limit, and no more may be passed. */
int rfb_take(struct rfb *r, const uint8_t *bytes, size_t n, struct err *err);

/* Bytes for the server: the caller drops what it has sent. */
struct buf *rfb_out(struct rfb *r);

/* True after the handshake; width and height are valid then. */
bool rfb_is_ready(const struct rfb *r);
unsigned rfb_width(const struct rfb *r);
unsigned rfb_height(const struct rfb *r);

/* ---- only after the handshake ---- */

/* Asks for all pixels; with `fence` for one only, whose arrival proves that all input before it
 * was read. One question at a time. False: too much waits to be sent. */
bool rfb_ask(struct rfb *r, bool fence);
/* True once the answer to rfb_ask() is complete. */
bool rfb_is_answered(const struct rfb *r);
/* width * height pixels, row after row; those that the server did not send are black. */
const uint8_t *rfb_pixels(const struct rfb *r);
/* Gives the pixels to the caller, who must free() them. The connection is over then. */
uint8_t *rfb_pixels_take(struct rfb *r);

/* An area of the screen. */
struct rfb_area {
    unsigned x, y, width, height;
};

/* Copies all further updates of the screen to `to`, which gets no more bytes than rfb_take() and
 * 16. Other messages are dropped. Not together with rfb_ask(). */
void rfb_show(struct rfb *r, struct buf *to);
/* Asks for pixels of an area, or for those that changed. False: too much waits to be sent. */
bool rfb_want(struct rfb *r, bool changed, struct rfb_area area);

/* False: too much input waits to be sent. buttons: those that are pressed. */
bool rfb_point(struct rfb *r, unsigned buttons, unsigned x, unsigned y);
bool rfb_key(struct rfb *r, uint32_t keysym, bool down);
