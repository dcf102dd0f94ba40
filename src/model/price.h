/*
 * The cost of model calls: prices from carrel.conf, and the exact cost after a call.
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

/* Returns the highest price of input, whether it is cached or not. */
uint64_t model_dearest_input(const struct conf_model *row);

enum { MODEL_WINDOW_UNKNOWN = 128000 };
/* Returns the context window in tokens; MODEL_WINDOW_UNKNOWN if carrel.conf does not set it. */
uint64_t model_window(const struct conf_model *row);
