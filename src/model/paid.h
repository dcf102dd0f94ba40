/*
 * Payment of one attempt of a model call. Its worst case is reserved (held), and the hold is on
 * disk before the attempt is made. The hold is settled once: with the real cost, with the held
 * amount, or with nothing.
 */
#pragma once

#include "io/loop.h"
#include "model/price.h"
#include "store/accounts.h"
#include "store/db.h"

struct paid_wait;

/* Zero the struct, then set the first five members. It is embedded in the struct that pays. */
struct paid {
    struct loop *loop;
    struct store *store;          /* NULL: no accounting, nothing is held */
    const char *account, *model;  /* owned by the caller */
    const struct conf_model *row; /* price; NULL: not known */
    char hold[ID_SIZE];           /* id of the hold; empty: nothing is held */
    struct paid_wait *wait;
};

/*
 * Reserves the worst case. -1: over budget, nothing is held. Else the loop calls fn(arg, err)
 * later: err NULL once the hold is on disk; otherwise nothing is held.
 */
typedef void paid_fn(void *arg, const struct err *err);
int paid_hold(struct paid *p, const struct cost *worst, paid_fn *fn, void *arg, struct err *err);

/* Charges the cost of the usage. usage NULL: unknown, so the held amount is charged. Does nothing
 * without a hold. */
void paid_settle(struct paid *p, const struct model_usage *usage);
/* Releases the hold of an attempt that was certainly not served. Cancels a pending fn. */
void paid_nothing(struct paid *p);
