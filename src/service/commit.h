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

/* One per machine. Zeroed, except for the functions, which may be NULL, and their argument. */
struct commit_lane {
    loop_fn *filled, *emptied; /* alternate: has a first commit; is empty again */
    loop_fn *late;             /* a commit has waited for COMMIT_LATE_MS */
    loop_fn *released;         /* called instead of `emptied` when the daemon stops */
    void *arg;
    bool busy;
    bool locked; /* the last try failed because of another program's lock, not a full disk */
    struct pending_commit *first, **last;
    struct commit_lane *next, **at; /* list of busy lanes */
};

struct commit {
    int (*write)(void *arg, struct err *err);
    /* failed: the rows can never be written because of a conflict; NULL on success. */
    void (*done)(void *arg, const struct err *failed);
    /*
     * Called once, before `done`, when the disk has been full for a while; may be NULL. It tells
     * waiting callers that nothing is saved yet.
     */
    void (*late)(void *arg, const struct err *why);
    void *arg; /* valid until `done` */
};

/* Time that a full disk may delay a commit before `late` is called. */
enum { COMMIT_LATE_MS = 1000, COMMIT_RETRY_MS = 200 };

struct commits *commits_new(struct loop *loop, struct store *store);
/* Drops what is not committed; nobody was told of it. */
void commits_free(struct commits *q);

/* Commits at once if the lane is empty and there is space; then it calls `done` itself. */
void commit_run(struct commits *q, struct commit_lane *lane, const struct commit *c);
/* For an intent: commits now or fails. `done` and `late` are not called. */
int commit_once(struct commits *q, const struct commit_lane *lane, const struct commit *c,
                struct err *err);

/* True if a commit waits, and if it has waited for COMMIT_LATE_MS. */
bool commit_waits(const struct commit_lane *lane);
bool commit_is_late(const struct commit_lane *lane);
/* Sets the error for a caller who would change something now. */
int commit_why_late(const struct commit_lane *lane, struct err *err);
