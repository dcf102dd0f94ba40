/*
 * Changes of a command in a directory that was granted as a copy (`cow`), and copying them back.
 *
 * The upper directory of the overlay gives the names to look at. Content is read through the
 * machine, from the merged view, because that is what the command saw.
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
    /* What was shown is what is written; unused for a deletion. */
    mode_t mode;
    char *target; /* of a link */
    char *bytes;  /* of a file, mapped */
    size_t n;
};

struct changes {
    struct change *list;
    size_t count;
    size_t held; /* bytes of their files */
    bool cut;    /* there are more than CHANGES_MAX */
};

/* Names that differ, sorted. An unreadable upper (rootless, private directories) sets `cut`. */
void changes_find(int upper, int host_dir, struct changes *ret);
void changes_done(struct changes *c);

struct apply {
    struct remote *remote;
    const struct grants *grants;
    const struct plan *plan;
    struct timespec since; /* a host file touched after this is not overwritten */
};

/* Shows the changes, asks, and writes exactly what was shown. */
int changes_apply(const struct apply *a, size_t grant, struct changes *c, struct err *err);
