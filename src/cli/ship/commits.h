/*
 * What commits change, a file a row, with what deserves a look (review/flags.h); and keys that
 * stood in a commit before the last, which a difference of both ends does not show.
 *
 * All of it is read by the owner's git from a repository that was checked; names and contents are a
 * machine's.
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
    uint32_t before, after;  /* modes of git's; 0: it is not there */
    char blob[COMMITS_HASH]; /* what it is now */
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

/* Rows of `git diff --raw -z --no-abbrev --no-renames`, which is a text of NULs. Pure. */
int commits_parse(const char *text, size_t n, struct commits *ret, struct err *err);

/* Of what leads from one to the other. more: flags that all have. */
int commits_read(const char *repo, const char *from, const char *to, unsigned more,
                 struct commits *ret, struct err *err);
