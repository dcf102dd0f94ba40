/*
 * Budgets for model calls: accounts in tokens and money, each with an optional parent. The spending
 * of an account is charged to its parents too. So the fork of a machine shares the rest of the
 * budget and never doubles it.
 *
 * Before a model call its estimated cost is held (reserved). After the call the hold is settled:
 * replaced by the real cost. So an account exceeds a limit by at most the errors of the estimates
 * of ACCOUNT_FLIGHTS_MAX calls. An unsettled hold stays charged; after a crash
 * store_holds_charge() turns it into spending. Money is in millionths of the owner's currency. Do
 * not call inside store_begin(): each function is a transaction.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/db.h"

enum {
    ACCOUNT_ID_SIZE = 80,     /* an id: "owner:ann", "machine:m-..." or "run:r-..." */
    ACCOUNT_MODEL_SIZE = 128, /* name of a model */
    ACCOUNT_DEPTH_MAX = 16,   /* levels, from an account to its topmost parent */
    ACCOUNT_FLIGHTS_MAX = 4,  /* calls in progress of an account with a limit */
};

struct cost {
    uint64_t tokens;
    uint64_t micro;
};

/* The tokens of a call by kind. */
struct cost_parts {
    uint64_t in; /* input that no cache had */
    uint64_t cache_read, cache_write;
    uint64_t out;
};

struct account_row {
    char id[ACCOUNT_ID_SIZE];
    char parent[ACCOUNT_ID_SIZE]; /* empty: no parent; never changes */
    int64_t created_ms;
    uint64_t limit_tokens; /* 0: unlimited; also for limit_micro */
    uint64_t limit_micro;
    uint64_t spent_tokens;
    uint64_t spent_micro;
    uint64_t held_tokens; /* reserved for model calls in progress */
    uint64_t held_micro;
    uint64_t calls; /* number of model calls that were settled */
};

/* Adds an account; for an existing one changes only the limits. */
int store_account_put(struct store *s, const struct account_row *row, struct err *err);
int store_account_get(struct store *s, const char *id, struct account_row *ret, struct err *err);

/* Returns the smallest remaining budget of the account and its parents; UINT64_MAX: no limit. */
int store_account_left(struct store *s, const char *id, struct cost *ret, struct err *err);

/*
 * Reserves the estimated cost of a model call. ERR_LIMIT names the account with too little budget
 * left. ERR_BUSY: the call may fit once other calls are settled, or ACCOUNT_FLIGHTS_MAX calls of
 * one limited account are in progress. With `priced` false the price of the model is unknown; this
 * is refused if the account or a parent has a money limit.
 */
struct hold {
    const char *account;
    const char *model;
    const char *currency; /* name of the unit of money, for messages; NULL: none */
    struct cost amount;
    struct cost least; /* the smallest form of the call, which decides about ERR_BUSY */
    bool priced;
    int64_t now_ms;
};
int store_hold(struct store *s, const struct hold *hold, char ret_id[ID_SIZE], struct err *err);

/*
 * Settles a hold with the real cost, even if that exceeds the held amount, and adds it to the
 * spending of the day (store/spending/spending.h). parts NULL: not known. ERR_NOT_FOUND: already
 * settled.
 */
int store_hold_settle(struct store *s, const char *id, const struct cost *real,
                      const struct cost_parts *parts, struct err *err);
/* Settles a hold whose real cost is unknown: the held amount counts as spent. */
int store_hold_keep(struct store *s, const char *id, struct err *err);

/* Limits a number of one call, so that sums stay in range. */
uint64_t account_at_most(uint64_t n);

/* At the start of a daemon: turns the holds of the previous daemon into spending. */
int store_holds_charge(struct store *s, size_t *ret_count, struct err *err);
