/*
 * Limits and sorted directory listings, shared by both halves of the comparer.
 *
 * The trees are hostile: patience_look() ends every walk after a maximum time and number of names.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/wire/changes.h"

struct patience {
    uint64_t looked, until_ms;
    enum changes_cut cut;
};

void patience_begin(struct patience *p);
/* False: enough has been looked at, and `cut` says of what. */
bool patience_look(struct patience *p);

/* Names of directories, sorted and each once. */
struct names {
    char **v;
    size_t count, size;
};

void look_names_done(struct names *n);
/* Those in a directory, but "." and ".."; -1 is none. False: patience has come to its end. */
bool names_read(struct names *n, int dir, struct patience *p);
void names_sort(struct names *n);

/* dir_open(), but -1: a walk goes on with one side missing, and -errno could be AT_FDCWD. */
int look_into(int dir, const char *name);
