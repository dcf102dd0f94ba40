/*
 * Parses /proc/PID/mountinfo: what is mounted where in a box.
 *
 * The box chooses the paths, so they may contain any bytes.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>

struct mount_line {
    unsigned id, parent;
    char path[PATH_MAX];
};

/* Reads the next valid line and moves *at behind it. False: there are no more. */
bool mountinfo_next(const char **at, struct mount_line *ret);
