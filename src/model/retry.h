/* When to try again: what the provider says, else back-off with jitter. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { MODEL_WAIT_MAX_MS = 60000 };

/*
 * From the fields "retry-after-ms" (milliseconds) and "retry-after" (seconds, or a date); either
 * may be NULL. False: they say nothing that can be used. At most a day.
 */
bool model_retry_after(const char *ms, const char *after, int64_t now_s, uint64_t *ret_ms);

/*
 * How long to wait before attempt `attempt` (1 is the second try): from base_ms doubling to a
 * minute, less up to a quarter by `random`.
 */
uint64_t model_back_off(unsigned attempt, uint64_t base_ms, uint32_t random);
