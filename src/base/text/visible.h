/*
 * Makes every character of a text visible, for a person who must judge it.
 *
 * One space between two other characters stays. Of several in a row, and of those at the ends, each
 * becomes a middle dot. Other blank or invisible characters become \u{NUMBER}, and bytes that are
 * not UTF-8 become \xNN. Nothing is cut.
 */
#pragma once

#include <stdint.h>

#include "base/buf.h"

/* Appends the visible form of n bytes of text. False: the buffer is full. */
bool visible_add(struct buf *to, const char *text, size_t n);

/* True for an invisible character, or one that changes the characters beside it; false for ' '. */
bool visible_is_unseen(uint32_t c);
