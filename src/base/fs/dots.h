/* Recognises "." and "..". Do not include <dirent.h>: the guest defines those types itself. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* True for "." and "..", which every list of a directory contains. */
static inline bool is_dots(const char *name) {
    return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/* True if the n bytes of a path are "." or "..". */
static inline bool is_dots_part(const char *part, size_t n) {
    return (n == 1 || n == 2) && part[0] == '.' && part[n - 1] == '.';
}
