/*
 * Ids are readable and unguessable, and begin with a letter for the kind: "m-4kq2x7w3n5ab".
 *
 * The kernel's random generator makes the twelve base32 characters (60 bits).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { ID_SIZE = 15 }; /* kind, dash, 12 characters, NUL */

struct id {
    char text[ID_SIZE];
};

struct id id_new(char kind);

/* True for a well-formed id of that kind. Check every id that comes from outside. */
bool id_valid(const char *text, size_t len, char kind);
