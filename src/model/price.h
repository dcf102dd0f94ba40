/*
 * The cost of model calls: prices from carrel.conf, the worst case before a call and the exact cost
 * after it.
 *
 * Money is counted in millionths of the owner's currency, as integers, always rounded up.
 */
#pragma once

#include <stddef.h>

#include "model/talk.h"
#include "store/accounts.h"
#include "store/conf_models.h"

/* Finds the row of carrel.conf for this model: an exact name first, then the longest match with a
 * star. */
const struct conf_model *model_row(const struct conf_model *rows, size_t count, const char *model);

/* row may be NULL or without prices: the money is then 0, and budgets in money are refused. */
struct cost model_cost(const struct conf_model *row, const struct model_usage *usage);

/*
 * Returns an upper bound of the usage: each byte of the request is at most one token, and the input
 * is at most the context window. `max_tokens` limits the answer.
 */
struct model_usage model_worst(const struct conf_model *row, size_t request_bytes,
                               uint64_t max_tokens);
struct cost model_worst_cost(const struct conf_model *row, size_t request_bytes,
                             uint64_t max_tokens);

/* Returns the highest price of input, whether it is cached or not. */
uint64_t model_dearest_input(const struct conf_model *row);

enum { MODEL_WINDOW_UNKNOWN = 128000 };
/* Returns the context window in tokens; MODEL_WINDOW_UNKNOWN if carrel.conf does not set it. */
uint64_t model_window(const struct conf_model *row);
