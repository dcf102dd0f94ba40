/*
 * Paths as rules compare them. A server may read a path differently from us: it may decode it once
 * more, drop parameters, or accept a wrong encoding. Where that could turn it into another path, it
 * is not plain, and no rule about paths allows it. Pure.
 */
#pragma once

#include <stdbool.h>

/*
 * False: dot segments and empty ones (also before a ';'), backslashes, control characters, encoded
 * dots, slashes and percent signs, and what is not strict UTF-8 or looks like one of these.
 */
bool path_is_plain(const char *path);

/* The value of two hexadecimal digits; -1: they are none. */
int path_hex(const char *digits);
