/*
 * Text that somebody has to judge, with everything in it made visible.
 *
 * One space between two other characters stays. Of several in a row, and of those at the ends, each
 * becomes a middle dot. Other blank or invisible characters become \u{NUMBER}, and bytes that are
 * no UTF-8 become \xNN. Nothing is cut.
 */
#pragma once

#include "base/buf.h"

/* False: the buffer is full. */
bool visible_add(struct buf *to, const char *text, size_t n);
