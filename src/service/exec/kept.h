/*
 * Chooses which output files to delete: the oldest, beyond an age, a limit per machine and a limit
 * per owner. Pure, except that it sorts the given files.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "store/db.h"

struct kept_file {
    char machine[ID_SIZE], exec[ID_SIZE];
    char owner[STORE_NAME_SIZE]; /* empty: unknown, counts for no owner */
    uint64_t bytes;
    int64_t time_ms; /* time of the last write */
    bool busy;       /* the command may still write: the file counts, but stays */
    bool goes;       /* result: the file is to be deleted */
};

/* Limits for kept output. 0: no limit. */
struct kept_limits {
    uint64_t machine_bytes, owner_bytes;
    int64_t since_ms;
};

void kept_choose(struct kept_file *files, size_t count, const struct kept_limits *limits);
