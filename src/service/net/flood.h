/*
 * Limits how many events of one kind are recorded one by one; the rest is only counted.
 *
 * A machine controls how often it is refused, so a refusal must not always cost a journal record.
 * The first few of a time window are recorded, the others are counted and reported once per window.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct flood {
    uint64_t since_ms; /* when the window began */
    uint64_t admitted;
    uint64_t counted; /* in this window, and not told yet */
};

struct flood_limit {
    uint64_t window_ms;
    uint64_t most; /* in one window */
};

/*
 * True once the window is over; then a new one begins, and *ret_counted is what the old one
 * counted (0: there is nothing to tell). Call it before flood_admit() and from a timer.
 */
bool flood_turn(struct flood *f, const struct flood_limit *limit, uint64_t now_ms,
                uint64_t *ret_counted);

/* True: write this one down. False: it was counted. */
bool flood_admit(struct flood *f, const struct flood_limit *limit);

/* For the last words of a machine: what was counted and not told yet. */
uint64_t flood_take(struct flood *f);
