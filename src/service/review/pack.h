/*
 * Packs the changes of a machine in a directory that was granted as a copy, on the host and without
 * the machine. Only src/service/review includes this header.
 */
#pragma once

#include "base/sha256.h"
#include "service/review/inner.h"
#include "store/grants.h"

struct packed {
    uint64_t bytes;
    char sha256[SHA256_HEX]; /* of the archive */
    struct buf list;         /* the changed paths: lines for baseline_pick() */
};

/* `what` is NULL if packing failed. The receiver may take its list. */
typedef void pack_done_fn(void *arg, struct packed *what, const struct err *err);

/* The number of a directory or volume in the plan of its machine; PLAN_MAX_GRANTS: unknown. */
uint32_t grant_number(const struct grant_row *grant);

/*
 * Writes the archive to `archive`, which stays open until `done` is called, from the loop. Waits
 * while too many comparisons run: packing the whole directory instead would read every file.
 * Returns 1; 0, if the upper (the directory of the changes) is unknown; or -1, if too many wait.
 * `done` is called only after 1.
 */
int changes_pack(struct live *l, const struct grant_row *grant, int archive, pack_done_fn *done,
                 void *arg, struct err *err);
