/*
 * Patterns of a .dockerignore file: which files of a build's directory are left out. Pure.
 *
 * A pattern matches a path or a directory above it; `**` matches any number of directories. The
 * last pattern that matches decides; `!` in front of it includes the path again.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/err.h"

enum { DOCKERIGNORE_BYTES_MAX = 64 << 10, DOCKERIGNORE_PATTERNS_MAX = 1024 };

struct dockerignore {
    struct arena arena;
    const char **patterns; /* without the "!" */
    bool *includes;        /* the pattern began with "!" */
    size_t count;
    bool has_includes;
};

int dockerignore_read(const char *bytes, size_t len, struct dockerignore *ret, struct err *err);
void dockerignore_done(struct dockerignore *d);
/* `path` is relative and clean: no "." or "..", no slash at its ends. */
bool dockerignore_matches(const struct dockerignore *d, const char *path);
