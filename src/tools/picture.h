/* Images that come from a machine. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Whether a text is a PNG image in base64, of at most `max` bytes. */
bool picture_is_png(const char *base64, size_t max);
