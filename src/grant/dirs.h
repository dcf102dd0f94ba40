/*
 * Directories and files of the host that are granted to a machine.
 *
 * The daemon opens no path that a client names. A local caller passes an open directory that it
 * owns; others may name only paths below the roots of carrel.conf.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/wire/plan.h"

#define GRANT_FILE_MAX ((off_t)4 << 30)

struct dir_grant {
    const char *path; /* as the caller typed it, for errors and as the default place */
    const char *at;   /* place in the machine; NULL: the same path */
    const char *mode; /* NULL: cow */
};

struct dir_rules {
    const char *const *own; /* Carrel's own directories, NULL-terminated: never granted */
    bool unreviewed;        /* mode rw is allowed */
    uid_t uid;              /* the local caller; 0 may grant directories of any user */
};

/* Checks the directories of a request and their descriptors `fds`, and fills ret[0..count). */
int dirs_check(const struct dir_grant *dirs, size_t count, const int *fds,
               const struct dir_rules *rules, struct plan_grant *ret, struct err *err);

/* Fails unless the path is absolute and without '.', '..' or '//'. */
int dirs_path_check(const char *path, struct err *err);
/* The root that the path is below; NULL: none. */
const char *dirs_root_of(const char *path, const char *const *roots, size_t root_count);
/* Opens a directory below one of the roots, without following links out of that root. */
int dirs_open_under(const char *path, const char *const *roots, size_t root_count, struct err *err);
/* Like dirs_open_under(), but opens a file. */
int files_open_under(const char *path, const char *const *roots, size_t root_count,
                     struct err *err);
/* Checks that fd is a regular file of at most GRANT_FILE_MAX bytes outside Carrel's directories. */
int file_check(int fd, const char *path, const char *const *own, struct err *err);
/*
 * Checks the place of one more grant after grants[0..count), and writes it to grants[count].path
 * without slashes at its end.
 */
int dirs_place(struct plan_grant *grants, size_t count, const char *at, struct err *err);
/* Checks that a grant may be placed at this path in the machine. */
int place_check(const char *path, struct err *err);
