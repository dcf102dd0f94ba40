/*
 * Files of a change set put into their directory, so that they can be taken back.
 *
 * Everything is staged in `.carrel-ship-ID` of the directory first, with what was there before kept
 * beside it and a receipt of all of it on the disk; then each file takes its place by one rename.
 * What was cut short is finished from its receipt, which is never written again. A name that its
 * owner gave to something else meanwhile is left to him.
 */
#pragma once

#include <jansson.h>

#include "review/parcel.h"

struct delivery {
    int dir;
    const char *id;                /* of the change set */
    long long record;              /* of the journal: that it was about to go out */
    const char *machine, *archive; /* for the receipt */
    const char *files_sha256;
};

enum { DELIVER_NAME = 96, DELIVER_NOW_MAX = 4 << 20 };

/*
 * Stages those that are wanted and writes the receipt, without touching anything else;
 * deliver_finish() puts them in their place. receipt: its name in the stage.
 */
int deliver(const struct delivery *d, const struct parcel *p, char receipt[DELIVER_NAME],
            struct err *err);

/* The machine's version of a file that both sides changed, kept in the stage under that name. */
int deliver_aside(int dir, const char *id, const struct parcel_item *i, char ret_name[DELIVER_NAME],
                  struct err *err);

struct delivered {
    long long record;
    long count; /* in their place */
    const char *files_sha256;
    const char *now; /* what these files are in their place, as a baseline */
};
typedef int deliver_fn(void *arg, const struct delivered *what, struct err *err);

/* Its owner's is there: kept is the machine's, in the stage, or NULL. */
typedef void deliver_left_fn(void *arg, const char *path, const char *kept);

/* Whatever has a receipt and is not in its place yet, also from before: how many. `left` comes for
 * each that is left alone, then `done` for the receipt, before it counts as done. */
long deliver_finish(int dir, const char *id, deliver_fn *done, deliver_left_fn *left, void *arg,
                    struct err *err);

/* Takes back what is still as it was delivered; *ret_kept counts what is not, and stays. Without
 * any of those the stage goes, too. now: what was put back, as a baseline. */
long deliver_undo(int dir, const char *id, long *ret_kept, char files_sha256[PARCEL_HEX],
                  struct buf *now, struct err *err);

/* Hash of the list "CHANGE SHA256 PATH\n" of all that is wanted; how many there are. */
long delivery_hash(const struct parcel *p, char ret[PARCEL_HEX]);
