#include "spawn/make/mountinfo.h"

#include <stdio.h>
#include <string.h>

/* Decodes escapes such as \040 in a path of mountinfo. False: the path is too long. */
static bool unescape(const char *from, size_t len, char to[PATH_MAX]) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (n + 1 >= PATH_MAX)
            return false;
        unsigned code;
        if (from[i] == '\\' && i + 3 < len && sscanf(from + i + 1, "%3o", &code) == 1) {
            to[n++] = (char)code;
            i += 3;
        } else {
            to[n++] = from[i];
        }
    }
    to[n] = '\0';
    return true;
}

/* Parses a line of mountinfo, such as "36 35 98:0 /mnt1 /mnt2 rw,...". */
static bool parse(const char *line, size_t len, struct mount_line *ret) {
    int at = 0;
    if (sscanf(line, "%u %u %*s %*s %n", &ret->id, &ret->parent, &at) != 2 || at == 0 ||
        (size_t)at >= len)
        return false;
    size_t n = strcspn(line + at, " \n");
    return n > 0 && unescape(line + at, n, ret->path);
}

bool mountinfo_next(const char **at, struct mount_line *ret) {
    while (**at) {
        const char *line = *at;
        size_t len = strcspn(line, "\n");
        *at += len + (line[len] == '\n');
        if (parse(line, len, ret))
            return true;
    }
    return false;
}
