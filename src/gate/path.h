/*
 * Checks that a path is plain, so that rules can compare it. A server may decode a path once more,
 * drop parameters, or accept invalid encodings. A path that could be read differently is not plain,
 * and no rule about paths allows it. Pure.
 */
#pragma once

#include <stdbool.h>

/*
 * False: dot segments and empty ones (also before a ';'), backslashes, control characters, encoded
 * dots, slashes and percent signs, and what is not strict UTF-8 or looks like one of these.
 */
bool path_is_plain(const char *path);

/* The value of two hexadecimal digits; -1: not hexadecimal. */
int path_hex(const char *digits);
