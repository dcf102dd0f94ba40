/*
 * Changes of a command in a directory that was granted as a copy (`cow`), and copying them back.
 *
 * The names of changed files come from the upper directory (the writable layer) of the overlay.
 * Their content is read through the machine, from the merged view that the command saw.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

#include "base/err.h"
#include "cli/grants.h"
#include "cli/remote.h"

enum { CHANGES_MAX = 10000 };

struct change {
    char *path; /* relative to the granted directory */
    char kind;  /* A added, M modified, D deleted */
    bool is_dir, is_link;
    /* The fields below are shown to the owner and then written; unused for a deletion. */
    mode_t mode;
    char *target; /* of a symbolic link */
    char *bytes;  /* content of a file, mapped */
    size_t n;     /* size of `bytes` */
};

struct changes {
    struct change *list;
    size_t count;
    size_t held; /* bytes of all files that were read */
    bool cut;    /* incomplete: unreadable directories, or more than CHANGES_MAX changes */
};

/*
 * Finds the changed names, sorted by path. Sets `cut` if `upper` has a directory that this user
 * cannot read, such as a private one of a rootless machine.
 */
void changes_find(int upper, int host_dir, struct changes *ret);
void changes_done(struct changes *c);

struct apply {
    struct remote *remote;
    const struct grants *grants;
    const struct plan *plan;
    struct timespec since; /* a host file that changed after this time is not overwritten */
};

/* Shows the changes, asks the owner, and writes exactly the changes that were shown. */
int changes_apply(const struct apply *a, size_t grant, struct changes *c, struct err *err);
