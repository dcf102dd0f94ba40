/*
 * Slices: the parts of a machine whose changes are reviewed. They are copies of directories,
 * repositories and databases that the owner granted to the machine.
 */
#pragma once

#include <stddef.h>

enum { SLICES_MAX = 64, SLICE_PATH = 4096, SLICE_WORD = 4400 };

enum slice_kind { SLICE_DIR, SLICE_REPO, SLICE_DATABASE, SLICE_SERVER };

struct slice {
    enum slice_kind kind;
    char at[SLICE_PATH];   /* path in the machine */
    char home[SLICE_PATH]; /* directory of the owner that changes go to; empty: none */
    char ref[256];         /* repository: the branch, tag or commit that was cloned */
    char exec[16];         /* repository: id of the command that cloned it, or empty */
};

struct slices {
    struct slice list[SLICES_MAX];
    size_t count;
};

/*
 * Adds the slice of a grant. Skips grants from which no changes come back, and all after
 * SLICES_MAX. mode NULL: changes are known to come back.
 */
void slices_add(struct slices *s, const char *kind, const char *mode, const char *at,
                const char *home);

/* Writes the name by which ship_review() finds a slice. what: the machine, or the change set. */
void slice_word(const struct slice *s, const char *what, char ret[SLICE_WORD]);
