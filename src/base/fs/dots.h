/* Without <dirent.h>, whose types the guest defines for itself. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* "." and "..", which every list of a directory has. */
static inline bool is_dots(const char *name) {
    return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/* The same for a part of a path, which is n bytes long. */
static inline bool is_dots_part(const char *part, size_t n) {
    return (n == 1 || n == 2) && part[0] == '.' && part[n - 1] == '.';
}
