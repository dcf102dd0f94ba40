/* Reads a secret that the user types or pipes. It is never an argument, which others could see. */
#pragma once

#include <stddef.h>

#include "base/err.h"

/*
 * Reads a line from a terminal without showing it, or all of standard input but a newline at its
 * end. what: "secret" or "token". value has room for max + 2 bytes, and ends with a NUL.
 */
int hidden_read(const char *what, char *value, size_t max, struct err *err);
