/*
 * Internal state of review. Only files of src/service/review include this header; other files call
 * the functions of review/live.h.
 */
#pragma once

#include "service/review/live.h"
#include "service/state.h"

enum { COMPARISONS_MAX = 2 };

/* Part of struct service. */
struct service_review {
    size_t comparing; /* number of workers that compare, running or about to start */
};
