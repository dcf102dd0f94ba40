/*
 * Parses /proc/PID/mountinfo: what is mounted where in a box.
 *
 * The paths are chosen by the box: any bytes.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>

struct mount_line {
    unsigned id, parent;
    char path[PATH_MAX];
};

/* The next valid line; *at moves behind it. False: none. */
bool mountinfo_next(const char **at, struct mount_line *ret);
