/*
 * Directories, as descriptors and as lists of names. Thin wrappers: lists are NULL with errno when
 * they fail, descriptors are -errno. None of them follows a symbolic link. Check a descriptor
 * before paths start from it: -ENETDOWN is AT_FDCWD.
 */
#pragma once

#include <dirent.h>

#include "base/fs/dots.h"

/* For DEFER: NULL stays, and NULL is left behind. */
void dir_close(DIR **d);

/* The list of an open directory. Owns the descriptor from now on, also when it fails; fd may be
 * negative. */
DIR *dir_take(int fd);

/* For reading; and only as a place to start paths from (O_PATH), which needs no right to read. */
int dir_open(int at, const char *name);
int dir_open_path(int at, const char *name);

DIR *dir_list(int at, const char *name);
