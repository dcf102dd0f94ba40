/*
 * Directories and files of the host that are handed to a machine.
 *
 * The daemon opens no path that a client names: a local caller passes an open directory and may
 * pass only what is its own; others may name only what lies under the roots of carrel.conf.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/wire/plan.h"

#define GRANT_FILE_MAX ((off_t)4 << 30)

struct dir_grant {
    const char *path; /* as the caller calls it, for messages and as the default place */
    const char *at;   /* NULL: the same path */
    const char *mode; /* NULL: cow */
};

struct dir_rules {
    const char *const *own; /* Carrel's directories, NULL-terminated: never part of a grant */
    bool unreviewed;
    uid_t uid; /* of a local caller; 0 may hand over anybody's */
};

/* Fills plan[0..count) and checks the descriptors that came with the request. */
int dirs_check(const struct dir_grant *dirs, size_t count, const int *fds,
               const struct dir_rules *rules, struct plan_grant *ret, struct err *err);

/* Opens a path that lies under one of the roots, following no link out of it; -1 with *err. */
int dirs_open_under(const char *path, const char *const *roots, size_t root_count, struct err *err);
/* The same for a file. */
int files_open_under(const char *path, const char *const *roots, size_t root_count,
                     struct err *err);
/* A plain file, open for reading, of no more than GRANT_FILE_MAX bytes, and none of our own. */
int file_check(int fd, const char *path, const char *const *own, struct err *err);
/* Could this be where something is put in the machine? */
int place_check(const char *path, struct err *err);
