/*
 * Commits: save the result of an operation that was done, and acknowledge it afterwards.
 *
 * `write` puts the rows in one transaction. `done` changes memory and notifies clients and guests;
 * it is called only after the commit. While the disk is full the commit is retried. Later commits
 * of the same lane (the queue of a machine) wait, so the rows of a machine are written in order. A
 * failing disk ends the daemon (store/db.h), and the next daemon finishes what was intended.
 *
 * An operation that was not done yet needs no commit: write its intent, and refuse the operation if
 * that fails.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "io/loop.h"
#include "store/db.h"

struct commits;
struct pending_commit;

/*
 * The queue of one machine. The owner sets the functions, which may be NULL, and arg; the rest is
 * zero at first.
 */
struct commit_lane {
    loop_fn *filled, *emptied; /* called in turn: first commit queued; queue empty again */
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
/* Drops waiting commits. They were not acknowledged to anybody. */
void commits_free(struct commits *q);

/* Commits and calls `done` at once if the lane is empty and the disk has space; else queues it. */
void commit_run(struct commits *q, struct commit_lane *lane, const struct commit *c);
/* For an intent: commits now or fails. `done` and `late` are not called. */
int commit_once(struct commits *q, const struct commit_lane *lane, const struct commit *c,
                struct err *err);

/* commit_waits(): a commit waits. commit_is_late(): it has waited for COMMIT_LATE_MS. */
bool commit_waits(const struct commit_lane *lane);
bool commit_is_late(const struct commit_lane *lane);
/* Sets the error for a caller whose change is refused because commits wait. */
int commit_why_late(const struct commit_lane *lane, struct err *err);
