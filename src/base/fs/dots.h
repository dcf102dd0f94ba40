/* Without <dirent.h>, whose types the guest defines for itself. */
#pragma once

#include <stdbool.h>

/* "." and "..", which every list of a directory has. */
static inline bool is_dots(const char *name) {
    return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}
