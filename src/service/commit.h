/*
 * Saves the effect of an operation that has already happened, and acknowledges it afterwards.
 *
 * `write` puts the rows in one transaction. `done` changes memory and notifies clients and guests;
 * it is called only after the commit. While the disk is full the commit is retried. Later commits
 * of the same lane wait, so the rows of a machine are written in order. A failing disk ends the
 * daemon (store/db.h), and the next daemon finishes what was intended.
 *
 * An effect that has not happened yet needs none of this: write the intent, and refuse if that
 * fails.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "io/loop.h"
#include "store/db.h"

struct commits;
struct pending_commit;

/* One for each machine. Zeroed but for the functions, which may be NULL, and their argument. */
struct commit_lane {
    loop_fn *filled, *emptied; /* something waits; nothing does any more. In turn. */
    loop_fn *late;             /* something has waited for COMMIT_LATE_MS */
    loop_fn *released;         /* in place of `emptied`, when the daemon leaves */
    void *arg;
    bool busy;
    bool locked; /* the last attempt met a lock of another program, not a full disk */
    struct pending_commit *first, **last;
    struct commit_lane *next, **at; /* among those that are busy */
};

struct commit {
    int (*write)(void *arg, struct err *err);
    /* failed: the rows can never be written, as they do not fit what is there; else NULL. */
    void (*done)(void *arg, const struct err *failed);
    /* Once, before `done`, when the disk has been full for a while; may be NULL. Who waits is told
     * that this is not written down yet. */
    void (*late)(void *arg, const struct err *why);
    void *arg; /* lives until `done` */
};

/* How long somebody waits for a full disk before `late`. */
enum { COMMIT_LATE_MS = 1000, COMMIT_RETRY_MS = 200 };

struct commits *commits_new(struct loop *loop, struct store *store);
/* What is not committed is forgotten: nobody was told of it. */
void commits_free(struct commits *q);

/* Now, if nothing waits in this lane and there is room: then `done` is called from within. */
void commit_run(struct commits *q, struct commit_lane *lane, const struct commit *c);
/* For an intent: now or never; `done` and `late` are not called. */
int commit_once(struct commits *q, const struct commit_lane *lane, const struct commit *c,
                struct err *err);

/* Something that was done waits to be written down; and has done so for COMMIT_LATE_MS. */
bool commit_waits(const struct commit_lane *lane);
bool commit_is_late(const struct commit_lane *lane);
/* Why it does, for whoever would change something now. */
int commit_why_late(const struct commit_lane *lane, struct err *err);
