/*
 * Puts the files of a change set into their directory, in a way that can be undone.
 *
 * The directory `.carrel-ship-ID` is the stage: the new files and a receipt that lists them are
 * written there and flushed first. Then each file is renamed to its place, and the previous version
 * is kept in the stage. An interrupted delivery is finished from its receipt, which never changes.
 * The rule: a file that its owner changed meanwhile is not touched.
 */
#pragma once

#include <jansson.h>

#include "base/sha256.h"
#include "review/parcel.h"

struct delivery {
    int dir;
    const char *id;                /* id of the change set */
    long long record;              /* number of the journal record, written before the delivery */
    const char *machine, *archive; /* written to the receipt (list of shipped files) */
    const char *files_sha256;
};

enum { DELIVER_NAME = 96, DELIVER_NOW_MAX = 4 << 20 };

/*
 * Stages the wanted items and writes the receipt. Touches nothing outside the stage;
 * deliver_finish() puts the files in their place. receipt: its name in the stage.
 */
int deliver(const struct delivery *d, const struct parcel *p, char receipt[DELIVER_NAME],
            struct err *err);

/* Keeps the machine's version of a file that both sides changed in the stage, under ret_name. */
int deliver_aside(int dir, const char *id, const struct parcel_item *i, char ret_name[DELIVER_NAME],
                  struct err *err);

struct delivered {
    long long record;
    long count; /* files that were put in their place */
    const char *files_sha256;
    const char *now; /* the delivered files as a baseline */
};
typedef int deliver_fn(void *arg, const struct delivered *what, struct err *err);

/* Called for a file that is left as the owner changed it. kept: the machine's version in the stage,
 * or NULL. */
typedef void deliver_left_fn(void *arg, const char *path, const char *kept);

/*
 * Finishes all receipts that are not done, also those of an interrupted delivery; returns the
 * number of files put in their place. Calls `left` for each file left alone, then `done` for the
 * receipt. If `done` fails, the receipt is finished again next time.
 */
long deliver_finish(int dir, const char *id, deliver_fn *done, deliver_left_fn *left, void *arg,
                    struct err *err);

/*
 * Restores the files that are still as delivered, and returns their number. *ret_kept counts the
 * others, which stay as they are; if it is 0, the stage is removed too. now: the restored files as
 * a baseline.
 */
long deliver_undo(int dir, const char *id, long *ret_kept, char files_sha256[SHA256_HEX],
                  struct buf *now, struct err *err);

/* Hashes the lines "CHANGE SHA256 PATH\n" of all wanted items; returns the number of items. */
long delivery_hash(const struct parcel *p, char ret[SHA256_HEX]);
