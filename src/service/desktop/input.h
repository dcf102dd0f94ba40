/* Turns an action into events of pointer and keys. Pure. */
#pragma once

#include "io/screen/rfb.h"
#include "service/desktop/desktop.h"

/* After the handshake. -1: the action is wrong, and what was written must not be sent. */
int desktop_input_write(const struct desktop_input *in, struct rfb *r, struct err *err);
