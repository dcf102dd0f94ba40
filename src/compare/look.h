/*
 * Limits and sorted directory listings, shared by trees.c and sizes.c.
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
/* Counts one more name. False: a limit is reached, and `cut` says which. */
bool patience_look(struct patience *p);

/* Names in directories. names_sort() sorts them and removes duplicates. */
struct names {
    char **v;
    size_t count, size;
};

void look_names_done(struct names *n);
/* Adds the names in `dir`, except "." and ".."; dir -1 has none. False: a limit is reached. */
bool names_read(struct names *n, int dir, struct patience *p);
void names_sort(struct names *n);

/* Like dir_open(), but returns -1 on failure: a walk continues with one side missing, and -errno
 * could equal AT_FDCWD. */
int look_into(int dir, const char *name);
