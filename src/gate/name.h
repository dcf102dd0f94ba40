/*
 * Host names in canonical form: lower case, no final dot.
 *
 * A name that a resolver might read as an address ("127.1", "0x7f.1", "1") is not valid.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { NAME_SIZE = 254, LABEL_MAX = 63 }; /* NAME_SIZE includes the final NUL */

/* Parses a host name into its canonical form. False, with ret empty: not a host name. */
bool name_read(const char *text, size_t n, char ret[NAME_SIZE]);

/* Whether a host name is below a suffix, at any depth: "a.example" is below "example", "example" is
 * not. */
bool name_is_below(const char *name, const char *suffix);
