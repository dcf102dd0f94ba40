/*
 * Checks that the path of a URL is plain, so that rules can compare it. A server may decode a path
 * once more, drop parameters, or accept invalid encodings. A path that could be read differently is
 * not plain, and no rule about paths allows it. Pure.
 */
#pragma once

#include <stdbool.h>

/*
 * False if the path has dot segments or empty ones (also before a ';'), backslashes, control
 * characters, encoded dots, slashes or percent signs, characters that look like one of these, or
 * bytes that are not strict UTF-8.
 */
bool path_is_plain(const char *path);

/* Returns the value of two hexadecimal digits; -1: not hexadecimal. */
int path_hex(const char *digits);
