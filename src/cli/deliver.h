/*
 * Files of a change set put into their directory, so that they can be taken back.
 *
 * Everything is staged in `.carrel-ship-ID` of the directory first, with what was there before kept
 * beside it and a list of all of it on the disk; then each file takes its place by one rename. What
 * was cut short is finished by doing it again: what is in its place already is left alone.
 */
#pragma once

#include <jansson.h>

#include "cli/parcel.h"

struct delivery {
    int dir;
    const char *id;                /* of the change set */
    long long record;              /* of the journal: that it was about to go out */
    const char *machine, *archive; /* for the receipt */
    const char *files_sha256;
};

/* Those that are wanted. How many are in their place now; -1 with *err. */
long deliver(const struct delivery *d, const struct parcel *p, struct err *err);

/* Takes back what is still as it was delivered; *ret_kept counts what is not, and stays. */
long deliver_undo(int dir, const char *id, long *ret_kept, char files_sha256[PARCEL_HEX],
                  struct err *err);

/* Hash of the list "CHANGE SHA256 PATH\n" of all that is wanted; how many there are. */
long delivery_hash(const struct parcel *p, char ret[PARCEL_HEX]);
