/*
 * The state of review/. Only files of src/service/review include this header; others call the
 * functions of review/live.h.
 */
#pragma once

#include "service/review/live.h"
#include "service/state.h"

enum { COMPARISONS_MAX = 2 };

/* Part of struct service. */
struct service_review {
    size_t comparing; /* workers that compare, or are about to */
};
