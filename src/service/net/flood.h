/*
 * How many events of one kind are written down one by one, and how many are only counted.
 *
 * A machine decides how often it is refused, so each refusal must not cost a line of the journal:
 * the first few of a window are admitted, the rest is a number that is told once per window.
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
