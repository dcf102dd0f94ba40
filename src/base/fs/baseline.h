/*
 * The state of a directory's files at some time, to find later changes.
 *
 * As text: a first line, then "INODE SIZE MTIME_NS CTIME_NS PATH" each, with every byte of a path
 * that is not plain ASCII written as %XX. A later line of a path replaces an earlier one; inode 0:
 * it is not there. The directory itself is ".". The line "cut" says that there were more files.
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

/* A line; st NULL: it is not there. False: the buffer is full. */
bool baseline_put(struct buf *to, const char *path, const struct stat *st);

/* With or without its first line. */
int baseline_read(const char *text, size_t n, struct baseline *ret, struct err *err);
void baseline_done(struct baseline *b);

/* NULL: nothing is known of it. */
const struct baseline_file *baseline_find(const struct baseline *b, const char *path);
/* Is it still that file, unchanged? */
bool baseline_same(const struct baseline_file *f, const struct stat *st);
