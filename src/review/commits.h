/*
 * The files that commits change, with their flags (review/flags.h), and keys that were in an
 * earlier commit only: a diff of the two ends does not show those.
 *
 * The input was printed by the owner's git (cli/ship/commits_read.h), but names and contents are a
 * machine's. The rule: nothing here runs a program or reads a file.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum { COMMITS_FILES_MAX = 20000, COMMITS_HASH = 65, COMMITS_SCAN_MAX = 1 << 20 };

struct commits_file {
    const char *path;        /* in the text that it was read from */
    char change;             /* A M D; C: only in a commit before the last */
    uint32_t before, after;  /* modes as in git; 0: no such file */
    char blob[COMMITS_HASH]; /* of the present content */
    uint64_t size;
    unsigned flags;
};

struct commits {
    struct commits_file *files;
    size_t count;
    bool cut; /* there are more */
    struct buf changes, objects;
};
void commits_done(struct commits *c);

/* Reads the output of `git diff --raw -z --no-abbrev --no-renames`. */
int commits_parse(const char *text, size_t n, struct commits *ret, struct err *err);
/*
 * Adds the objects of c->objects, a line "HASH PATH" each, that are not the present contents of a
 * file. Directories are still among them. Cuts c->objects into strings, which the paths point to.
 */
void commits_add_objects(struct commits *c);

/* False for a deleted file and for a submodule. */
bool commits_has_blob(const struct commits_file *f);
/*
 * Takes the sizes from what `git cat-file --batch-check` printed for each file with a blob, in
 * order, and removes directories.
 */
int commits_set_sizes(struct commits *c, const char *text, size_t n, struct err *err);

/* The size of the largest files that are scanned, chosen so that all of them fit in memory. */
uint64_t commits_scan_limit(const struct commits *c);
/*
 * Sets the flags of all files from what `git cat-file --batch` printed for each file with a blob of
 * at most `most` bytes, in order. Larger files are known by name alone.
 */
int commits_scan(struct commits *c, const char *text, size_t n, uint64_t most, struct err *err);

/*
 * Removes files of earlier commits that do not look like a key, and adds the flags `more` to all
 * that are not deleted.
 */
void commits_keep_worthy(struct commits *c, unsigned more);
