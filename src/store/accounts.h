/*
 * Budgets for model calls: accounts in tokens and money, each with a parent or none. What a child
 * spends its parents have spent too, so a fork that is a child shares what is left and never
 * doubles it.
 *
 * Before a call its worst case is held; afterwards the hold is settled with what it really cost. A
 * hold that nobody settles stays charged, and after a crash store_holds_charge() makes it spent.
 * Money is counted in millionths of whatever unit the owner's prices are in. Not inside
 * store_begin(): each of these is a transaction of its own.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/db.h"

enum {
    ACCOUNT_ID_SIZE = 80,     /* "owner:ann", "machine:m-...", "run:r-..." */
    ACCOUNT_MODEL_SIZE = 128, /* name of a model */
    ACCOUNT_DEPTH_MAX = 16,   /* generations */
};

struct cost {
    uint64_t tokens;
    uint64_t micro;
};

struct account_row {
    char id[ACCOUNT_ID_SIZE];
    char parent[ACCOUNT_ID_SIZE]; /* empty: none; never changes */
    int64_t created_ms;
    uint64_t limit_tokens; /* 0: none, here and below */
    uint64_t limit_micro;
    uint64_t spent_tokens;
    uint64_t spent_micro;
    uint64_t held_tokens; /* by calls that are under way */
    uint64_t held_micro;
    uint64_t calls; /* settled ones */
};

/* Adds an account with its limits; of one that is there, changes the limits only. */
int store_account_put(struct store *s, const struct account_row *row, struct err *err);
int store_account_get(struct store *s, const char *id, struct account_row *ret, struct err *err);

/* The least that any account of the line has left; UINT64_MAX where none has a limit. */
int store_account_left(struct store *s, const char *id, struct cost *ret, struct err *err);

/*
 * `limit` names the account that has too little and says how much it has. priced = false: nobody
 * knows what the model costs, which is refused where any account of the line has a limit in money.
 */
struct hold {
    const char *account;
    const char *model;
    struct cost worst;
    bool priced;
    int64_t now_ms;
};
int store_hold(struct store *s, const struct hold *hold, char ret_id[ID_SIZE], struct err *err);

/* What it really cost, even if that is more than was held. `not_found`: it is settled already. */
int store_hold_settle(struct store *s, const char *id, const struct cost *real, struct err *err);
/* The call was made and nobody knows what it cost: what was held is spent. */
int store_hold_keep(struct store *s, const char *id, struct err *err);

/* For the start of a daemon: holds of the one before are kept, as above. */
int store_holds_charge(struct store *s, size_t *ret_count, struct err *err);
