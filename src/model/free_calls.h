/*
 * Limits the rate of requests that cost nothing, such as lists of models, for each account.
 *
 * An account may make FREE_CALLS_BURST requests at once; FREE_CALLS_PER_S are added each second.
 * Pure: the caller passes the time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/map.h"

enum { FREE_CALLS_BURST = 240, FREE_CALLS_PER_S = 4 };

/* Zero the struct to start; free_calls_done() frees it. */
struct free_calls {
    struct map accounts;
};

/* Counts one request of the account. False: it has made too many. */
bool free_calls_take(struct free_calls *c, const char *account, uint64_t now_ms);
void free_calls_done(struct free_calls *c);
