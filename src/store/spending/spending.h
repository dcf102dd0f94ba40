/*
 * What model calls cost, by day, machine and model. Rows are written with the settlement of a hold
 * (store/accounts.h), in its transaction, so their sum is what the accounts spent. Days are those
 * of UTC. Rows are kept for SPENDING_DAYS.
 */
#pragma once

#include "store/accounts.h"

enum {
    SPENDING_DAYS = 400,
    SPENDING_ROWS_MAX = 1000, /* of one answer */
    SPENDING_KEY_SIZE = ACCOUNT_MODEL_SIZE,
};

enum spending_by {
    SPENDING_BY_DAY,
    SPENDING_BY_MODEL,
    SPENDING_BY_MACHINE,
    SPENDING_BY_OWNER,
    SPENDING_BYS
};

struct spending_row {
    char key[SPENDING_KEY_SIZE]; /* a day such as "2026-11-18", a model, an owner, or the id of a
                                    machine; empty: a run without a machine */
    uint64_t calls;
    struct cost cost;
    struct cost_parts parts;
};

/* Adds a settled call. Call inside store_begin(). parts NULL: not known. */
int spending_add(struct store *s, const char *account, const char *model, int64_t when_ms,
                 const struct cost *cost, const struct cost_parts *parts, struct err *err);

/*
 * Sums what the owner spent since day `since` (days since 1970): newest day, or dearest model,
 * machine or owner first. owner NULL: all owners, only with SPENDING_BY_OWNER. Returns the number
 * of rows, at most SPENDING_ROWS_MAX. The caller frees *ret.
 */
int store_spending(struct store *s, const char *owner, enum spending_by by, int64_t since,
                   struct spending_row **ret, size_t *ret_count, struct err *err);
