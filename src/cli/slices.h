/* What a machine was handed so that something comes back: copies of directories, and repositories.
 */
#pragma once

#include "cli/client.h"

enum { SLICES_MAX = 64, SLICE_PATH = 4096, SLICE_WORD = 4400 };

struct slice {
    char at[SLICE_PATH];   /* in the machine */
    char home[SLICE_PATH]; /* on its owner's side */
    bool is_repo;
};

struct slices {
    struct slice list[SLICES_MAX];
    size_t count;
};

/* Of a machine; or the one that a change set is the work on. None: an error that says so. */
int slices_find(struct client *c, const char *word, struct slices *ret, struct err *err);
/* The same without that: of a machine, all there are. */
int slices_of(struct client *c, const char *machine, struct slices *ret, struct err *err);
/* How ship_review() knows it. what: the machine, or the change set. */
void slice_word(const struct slice *s, const char *what, char ret[SLICE_WORD]);
