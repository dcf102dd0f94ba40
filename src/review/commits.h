/*
 * The files that commits change, with their flags (review/flags.h), and files with a secret key
 * that only an earlier commit contains: a diff of the first and the last state does not show those.
 *
 * The input was printed by the owner's git (cli/ship/commits_read.h), but names and contents come
 * from a machine. The rule: nothing here runs a program or reads a file.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum { COMMITS_FILES_MAX = 20000, COMMITS_HASH = 65, COMMITS_SCAN_MAX = 1 << 20 };

struct commits_file {
    const char *path;        /* points into the text that was parsed */
    char change;             /* A added, M modified, D deleted; C: only in an earlier commit */
    uint32_t before, after;  /* modes as in git; 0: the file does not exist */
    char blob[COMMITS_HASH]; /* git's hash of the content */
    uint64_t size;
    unsigned flags;
};

struct commits {
    struct commits_file *files;
    size_t count;
    bool cut; /* there are more files than COMMITS_FILES_MAX */
    struct buf changes, objects;
};
void commits_done(struct commits *c);

/* Reads the output of `git diff --raw -z --no-abbrev --no-renames`. */
int commits_parse(const char *text, size_t n, struct commits *ret, struct err *err);
/*
 * Adds the objects that are not the final content of a file. c->objects lists them, one line "HASH
 * PATH" each; the function cuts it into strings, which the paths point to. The added objects
 * include directories, which commits_set_sizes() removes.
 */
void commits_add_objects(struct commits *c);

/* False for a deleted file and for a submodule. */
bool commits_has_blob(const struct commits_file *f);
/*
 * Reads the sizes from the output of `git cat-file --batch-check` for each file with a blob, in
 * order, and removes directories.
 */
int commits_set_sizes(struct commits *c, const char *text, size_t n, struct err *err);

/* Returns the size up to which files are scanned, chosen so that all of them fit in memory. */
uint64_t commits_scan_limit(const struct commits *c);
/*
 * Sets the flags of all files from the output of `git cat-file --batch` for each file with a blob
 * of at most `most` bytes, in order. Larger files get flags by their name alone.
 */
int commits_scan(struct commits *c, const char *text, size_t n, uint64_t most, struct err *err);

/*
 * Removes from the list the files of earlier commits that do not look like a key. Adds the flags
 * `more` to the other files, except deleted ones.
 */
void commits_keep_worthy(struct commits *c, unsigned more);
