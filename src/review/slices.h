/*
 * The parts of a machine that are reviewed in the end: copies of directories, repositories and
 * databases that its owner handed over.
 */
#pragma once

#include <stddef.h>

enum { SLICES_MAX = 64, SLICE_PATH = 4096, SLICE_WORD = 4400 };

enum slice_kind { SLICE_DIR, SLICE_REPO, SLICE_DATABASE, SLICE_SERVER };

struct slice {
    enum slice_kind kind;
    char at[SLICE_PATH];   /* in the machine */
    char home[SLICE_PATH]; /* on its owner's side: the directory it goes to; empty: none */
};

struct slices {
    struct slice list[SLICES_MAX];
    size_t count;
};

/*
 * Adds what a grant handed over. Leaves out grants that nothing comes back from, and all after
 * SLICES_MAX. mode NULL: it is known to come back.
 */
void slices_add(struct slices *s, const char *kind, const char *mode, const char *at,
                const char *home);

/* How ship_review() names a slice. what: the machine, or the change set. */
void slice_word(const struct slice *s, const char *what, char ret[SLICE_WORD]);
