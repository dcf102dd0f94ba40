/*
 * What a machine was handed so that it is looked at in the end: copies of directories, repositories
 * and databases.
 */
#pragma once

#include "cli/client.h"

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
 * Of a machine; or the one that a change set is the work on, which it knows though machine and
 * grant are gone. None, or one that its owner took back since: an error that says so.
 */
int slices_find(struct client *c, const char *word, struct slices *ret, struct err *err);
/* The same without that: of a machine, all there are. */
int slices_of(struct client *c, const char *machine, struct slices *ret, struct err *err);
/* How ship_review() knows it. what: the machine, or the change set. */
void slice_word(const struct slice *s, const char *what, char ret[SLICE_WORD]);
