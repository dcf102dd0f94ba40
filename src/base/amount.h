/*
 * Numbers as people read them: the opposite of base/parse.h.
 *
 * For messages and tables only: what is printed may be rounded.
 */
#pragma once

#include <stdint.h>

enum { AMOUNT_SIZE = 48 };

/* "250ms", "1.5s", "45s", "1h 30m", "2d 4h"; 0 is "0s". */
void amount_duration(uint64_t us, char ret[AMOUNT_SIZE]);
