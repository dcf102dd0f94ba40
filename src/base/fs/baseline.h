/*
 * A baseline: the state of a directory's files at some time, to find later changes.
 *
 * Its text has a first line, then "INODE SIZE MTIME_NS CTIME_NS PATH" for each file. Bytes of a
 * path that are not printable ASCII, and '%', are written as %XX. A later line of a path replaces
 * an earlier one. Inode 0 means that the file does not exist. The directory itself is ".". The line
 * "cut" means that the list is incomplete.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/err.h"

enum { BASELINE_FILES_MAX = 100000, BASELINE_TEXT_MAX = 64 << 20 };
#define BASELINE_HEAD "baseline 1\n"

struct baseline_file {
    const char *path;
    uint64_t inode, size;
    int64_t mtime_ns, ctime_ns;
};

struct baseline {
    struct baseline_file *files; /* sorted by path, each once */
    size_t count;
    bool cut;
    char *paths;
};

/* Adds the line of a file. st NULL: the file does not exist. False: the buffer is full. */
bool baseline_put(struct buf *to, const char *path, const struct stat *st);

/* Adds a path as the lines of a baseline have it. False: the buffer is full. */
bool baseline_put_path(struct buf *to, const char *path);

/*
 * Copies the first line, "cut", and the lines of some paths of a baseline to `ret`. `paths` has a
 * line "KIND PATH" for each of them, with the path as in a baseline. '=' is that path only, '/'
 * also everything below it. The directory itself is always included. False: `ret` is full.
 */
bool baseline_pick(const char *text, size_t n, const char *paths, size_t paths_n, struct buf *ret);

/* Parses the text of a baseline; the first line may be missing. */
int baseline_read(const char *text, size_t n, struct baseline *ret, struct err *err);
void baseline_done(struct baseline *b);

/* Finds the file with this path; NULL: the baseline has no line about it. */
const struct baseline_file *baseline_find(const struct baseline *b, const char *path);
/* True if st is the same file as in the baseline, and unchanged. */
bool baseline_same(const struct baseline_file *f, const struct stat *st);
