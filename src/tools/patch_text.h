/*
 * Patches of several files, as models write them: unified diffs, and the form that starts with
 * "*** Begin Patch".
 *
 * Pure: patch_parse() reads the text, patch_apply() changes the text of one file. Line numbers and
 * counts of a unified diff are only hints. The lines to replace must be in the file, with the same
 * indentation; blanks at line ends may differ.
 */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    PATCH_FILES_MAX = 100,
    PATCH_HUNKS_MAX = 2000,
    PATCH_LINES_MAX = 200000,
    PATCH_WORK = 100 << 20,
};

enum patch_kind { PATCH_ADD, PATCH_UPDATE, PATCH_DELETE };

/* A line of a hunk; s points into the text of the patch. */
struct patch_line {
    char sign;  /* ' ', '-' or '+' */
    bool open;  /* the file ends with this line, without a newline */
    bool extra; /* an empty line that the header of the hunk does not count */
    const char *s;
    size_t n;
};

struct patch_hunk {
    size_t first, count; /* lines of the hunk, in patch->lines */
    uint64_t old_line;   /* line number in the old file; 0: not known */
    const char *anchor;  /* a line above the hunk, or NULL */
    size_t anchor_n;
    bool at_end; /* the hunk must match the end of the file */
};

struct patch_file {
    enum patch_kind kind;
    char *path;
    char *to;            /* new path of a file that is moved, or NULL */
    size_t first, count; /* hunks, in patch->hunks; an added file has at most one */
};

struct patch {
    struct patch_file *files;
    struct patch_hunk *hunks;
    struct patch_line *lines;
    size_t file_count, hunk_count, line_count;
    uint64_t work; /* bytes that patch_apply() may still compare: it runs on the loop's thread */
};

/* The text must outlive *ret. Free it with patch_done(), also after a failure. */
int patch_parse(const char *text, struct patch *ret, struct err *err);
void patch_done(struct patch *p);

struct patch_counts {
    uint64_t added, removed; /* lines */
};

/*
 * Applies the hunks of a file that is added or updated to `text`, in order. On failure the text is
 * unchanged, and `hint` shows the lines that are most similar to those of the hunk.
 */
int patch_apply(struct patch *p, const struct patch_file *f, struct buf *text,
                struct patch_counts *ret, struct buf *hint, struct err *err);
