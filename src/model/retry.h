/*
 * Delay before a model call is repeated: the provider's Retry-After, else exponential back-off.
 *
 * Pure: time and random bits are arguments.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { MODEL_WAIT_MAX_MS = 60000 };

/*
 * Reads the fields "retry-after-ms" (milliseconds) and "retry-after" (seconds or a date); either
 * may be NULL. *ret_ms is at most one day. False: no usable value.
 */
bool model_retry_after(const char *ms, const char *after, int64_t now_s, uint64_t *ret_ms);

/*
 * The delay before attempt `attempt` (1 is the first retry): base_ms doubled each time up to a
 * minute, minus up to a quarter by `random`.
 */
uint64_t model_back_off(unsigned attempt, uint64_t base_ms, uint32_t random);
