/*
 * Opens directories, as a descriptor or as a DIR. After a failure a DIR is NULL with errno set, and
 * a descriptor is -errno. None of the functions follows a symbolic link. Check a descriptor before
 * you pass it to openat(): -ENETDOWN equals AT_FDCWD, the current directory.
 */
#pragma once

#include <dirent.h>

#include "base/fs/dots.h"

/* Closes *d and sets it to NULL; *d may be NULL. For DEFER(). */
void dir_close(DIR **d);

/* Makes a DIR of a descriptor, which it owns from now on. It closes fd after a failure; a negative
 * fd fails. */
DIR *dir_take(int fd);

/* dir_open() opens for reading. dir_open_path() needs no right to read: it uses O_PATH, so that the
 * descriptor is only a start for paths. */
int dir_open(int at, const char *name);
int dir_open_path(int at, const char *name);

DIR *dir_list(int at, const char *name);
