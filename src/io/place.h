/*
 * Finds the run and data directories and the other programs of Carrel.
 *
 * CARREL_RUN and CARREL_HOME decide; without them root uses /run/carrel and /var/lib/carrel, other
 * users their XDG directories. Programs are found next to the running one, so an uninstalled build
 * works.
 */
#pragma once

#include "base/err.h"

enum { PLACE_SIZE = 1024 };

struct place {
    char run[PLACE_SIZE];
    char home[PLACE_SIZE];
    char libexec[PLACE_SIZE]; /* directory of carrel-spawn, carrel-guest, carrel-cell */
};

int place_find(struct place *ret, struct err *err);

/* Creates the run and data directories with mode 0700; refuses one that belongs to another user. */
int place_make(const struct place *place, struct err *err);
