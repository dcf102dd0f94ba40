/*
 * One attempt that is paid for: its worst case is held and on the disk before it is made, and it is
 * settled once, with what it cost, with what was held, or with nothing.
 */
#pragma once

#include "io/loop.h"
#include "model/price.h"
#include "store/accounts.h"
#include "store/db.h"

struct paid_wait;

/* Zero, then set the first five; a member of what pays. */
struct paid {
    struct loop *loop;
    struct store *store;          /* NULL: nobody counts, and nothing is held */
    const char *account, *model;  /* stay the owner's */
    const struct conf_model *row; /* price; NULL: not known */
    char hold[ID_SIZE];           /* empty: nothing is held */
    struct paid_wait *wait;
};

/*
 * -1: the budget does not allow it, and nothing is held. Else fn(arg, err) comes later, from the
 * loop: err = NULL when the hold is on the disk; if not, nothing is held.
 */
typedef void paid_fn(void *arg, const struct err *err);
int paid_hold(struct paid *p, const struct cost *worst, paid_fn *fn, void *arg, struct err *err);

/* usage = NULL: nobody knows, so what was held is spent. Nothing held: nothing happens. */
void paid_settle(struct paid *p, const struct model_usage *usage);
/* It was certainly never served. Also takes back an fn that has not come yet. */
void paid_nothing(struct paid *p);
