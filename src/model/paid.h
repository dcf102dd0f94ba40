/*
 * Payment of one attempt of a model call. Its estimated cost is reserved (held), and the hold is on
 * disk before the attempt is made. The hold is settled once: with the real cost, with the held
 * amount, or with nothing.
 *
 * All payments of a store share a struct ledger. It keeps the estimates, and the calls that wait
 * because other calls hold the rest of their budget. These go on in the order in which they came.
 */
#pragma once

#include "io/loop.h"
#include "model/estimate.h"
#include "model/price.h"
#include "store/accounts.h"
#include "store/db.h"

/* Calls of one account that may wait; further ones fail with ERR_BUSY. */
enum { LEDGER_WAITING_MAX = 32 };

struct ledger;
/* loop, store and currency (the name of the unit of money; may be NULL) belong to the caller. */
struct ledger *ledger_new(struct loop *loop, struct store *store, const char *currency);
void ledger_free(struct ledger *l);
struct store *ledger_store(const struct ledger *l);
struct model_estimates *ledger_estimates(const struct ledger *l);

struct paid_wait;

/* Zero the struct, then set the first four members. It is embedded in the struct that pays. */
struct paid {
    struct ledger *ledger;        /* NULL: no accounting, nothing is held */
    const char *account, *model;  /* owned by the caller */
    const struct conf_model *row; /* price; NULL: not known */
    char hold[ID_SIZE];           /* id of the hold; empty: nothing is held */
    struct paid_wait *wait;
};

/*
 * Reserves an amount. -1: over budget, nothing is held. Else the loop calls fn(arg, err) later: err
 * NULL once the hold is on disk; otherwise nothing is held. While only other calls are in the way,
 * fn is not called. least: the smallest amount that the caller can use instead; ERR_LIMIT means
 * that not even waiting makes room for `amount`.
 */
typedef void paid_fn(void *arg, const struct err *err);
int paid_hold(struct paid *p, const struct cost *amount, const struct cost *least, paid_fn *fn,
              void *arg, struct err *err);

/* Charges the cost of the usage. usage NULL: unknown, so the held amount is charged. Does nothing
 * without a hold. */
void paid_settle(struct paid *p, const struct model_usage *usage);
/* Releases the hold of an attempt that was certainly not served. Cancels a pending fn. */
void paid_nothing(struct paid *p);
