/*
 * Makes every character of a text visible, for a person who must judge it.
 *
 * One space between two other characters stays. Of several in a row, and of those at the ends, each
 * becomes a middle dot. Other blank or invisible characters become \u{NUMBER}, and bytes that are
 * no UTF-8 become \xNN. Nothing is cut.
 */
#pragma once

#include <stdint.h>

#include "base/buf.h"

/* False: the buffer is full. */
bool visible_add(struct buf *to, const char *text, size_t n);

/* A character without ink, or one that changes what stands beside it; the space of ASCII is none.
 */
bool visible_is_unseen(uint32_t c);
