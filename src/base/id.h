/*
 * Ids are readable and unguessable, and begin with a letter for the kind: "m-4kq2x7w3n5ab".
 *
 * The kernel's random generator makes the twelve base32 characters (60 bits).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum {
    ID_SIZE = 15,       /* kind, dash, 12 characters, NUL */
    ID_LABEL_SIZE = 14, /* the same without the dash */
};

struct id {
    char text[ID_SIZE];
};

struct id id_new(char kind);

/* True for a well-formed id of that kind. Check every id that comes from outside. */
bool id_valid(const char *text, size_t len, char kind);

/*
 * The label of an id is the id without its dash: "m4kq2x7w3n5ab". It stands where a dash separates
 * something else, such as in host names and in ids of E2B sandboxes. Pure.
 */
void id_to_label(const char *id, char ret[ID_LABEL_SIZE]);
/* False: the text is not the label of an id of that kind. */
bool id_from_label(const char *label, size_t len, char kind, char ret[ID_SIZE]);
