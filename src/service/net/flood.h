/*
 * Limits how many events of one kind get a journal record each; further events are only counted.
 *
 * A machine controls how often it is refused, so a refusal must not always cost a journal record.
 * The first few of a time window are recorded, the others are counted and reported once per window.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct flood {
    uint64_t since_ms; /* start of the time window */
    uint64_t admitted;
    uint64_t counted; /* events of this time window that are not reported yet */
};

struct flood_limit {
    uint64_t window_ms;
    uint64_t most; /* per window */
};

/*
 * True if the time window is over; then a new one starts, and *ret_counted is the count of the old
 * one (0: nothing to report). Call it before flood_admit() and from a timer.
 */
bool flood_turn(struct flood *f, const struct flood_limit *limit, uint64_t now_ms,
                uint64_t *ret_counted);

/* True: record the event. False: it was only counted. */
bool flood_admit(struct flood *f, const struct flood_limit *limit);

/* Returns the number of events that were not reported yet. Called when a machine ends. */
uint64_t flood_take(struct flood *f);
