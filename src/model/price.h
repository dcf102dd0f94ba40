/*
 * What calls cost: prices from carrel.conf, the worst case before a call and the exact cost after.
 *
 * Money is millionths of the owner's unit, in integers; a cost is rounded up, never down.
 */
#pragma once

#include <stddef.h>

#include "model/talk.h"
#include "store/accounts.h"
#include "store/conf_models.h"

/* The row for this model: its own name first, then the longest one that ends in a star. */
const struct conf_model *model_row(const struct conf_model *rows, size_t count, const char *model);

/* row may be NULL or without prices: then the money is 0 and budgets in money are refused. */
struct cost model_cost(const struct conf_model *row, const struct model_usage *usage);

/*
 * More than the call can take: no token is shorter than a byte of the request, and no input is
 * larger than the window. `max_tokens` is the most that the answer may have.
 */
struct model_usage model_worst(const struct conf_model *row, size_t request_bytes,
                               uint64_t max_tokens);
struct cost model_worst_cost(const struct conf_model *row, size_t request_bytes,
                             uint64_t max_tokens);

enum { MODEL_WINDOW_UNKNOWN = 128000 };
/* Tokens of the model's window, as far as anybody said. */
uint64_t model_window(const struct conf_model *row);
