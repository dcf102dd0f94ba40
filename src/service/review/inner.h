/*
 * Internal state of review. Only files of src/service/review include this header; other files call
 * the functions of review/live.h.
 */
#pragma once

#include "service/review/live.h"
#include "service/state.h"

enum { COMPARISONS_MAX = 2, COMPARISONS_WAITING_MAX = 256 };

/* A comparison that waits for its turn. The caller owns it, and fills in `call`. */
struct comparison_wait {
    struct loop_call call;
    struct comparison_wait *next;
};

/* Part of struct service. */
struct service_review {
    size_t comparing; /* number of workers that compare, running or about to start */
    struct comparison_wait *first, *last;
    size_t waiting;
};

/*
 * Makes the deferred call when a comparison is reserved, in the order of these requests. The call
 * must lead to comparison_end(). False: too many wait.
 */
bool comparison_await(struct service *s, struct comparison_wait *w);
