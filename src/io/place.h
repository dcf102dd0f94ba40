/*
 * Finds the run and data directories and the other programs of Carrel.
 *
 * CARREL_RUN and CARREL_HOME decide; without them root uses /run/carrel and /var/lib/carrel, other
 * users their XDG directories. If variables are missing, the lock files of store and run directory
 * lead to the places that are in use. Programs are found next to the running one, so an uninstalled
 * build works.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

enum { PLACE_SIZE = 1024 };

/* Run directory of root's daemon, which may serve all users. */
#define PLACE_SHARED_RUN "/run/carrel"
#define PLACE_SHARED_MARK PLACE_SHARED_RUN "/shared" /* exists if it does */

struct place {
    char run[PLACE_SIZE];
    char home[PLACE_SIZE];
    char libexec[PLACE_SIZE];         /* directory of carrel-spawn, carrel-guest, carrel-cell */
    const char *run_from, *home_from; /* the variable or file that named the directory */
    bool has_store;                   /* home holds a store */
};

int place_find(struct place *ret, struct err *err);

/*
 * True if this user's commands use root's daemon, which serves all users of the host. Only the
 * variables and lasting files decide, never which daemon runs now. *ret_why is for people.
 */
bool place_is_shared(const struct place *place, const char **ret_why);

/* True if machines run in the run directory. They may have outlived their daemon. */
bool place_has_boxes(const char *run);

/* Refuses a run directory that another user created, unless CARREL_RUN names it. */
int place_check_run(const struct place *place, struct err *err);

/* Creates the run and data directories with mode 0700; refuses one that belongs to another user. */
int place_make(const struct place *place, struct err *err);
