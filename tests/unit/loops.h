/* A loop of a test that runs until somebody stops it, and not for ever. */
#pragma once

#include "io/loop.h"

static inline void unit_loop_stop(void *loop) {
    loop_stop(loop);
}

static inline void unit_loop_run(struct loop *loop, uint64_t max_ms) {
    struct loop_timer *t = loop_timer_new(loop, unit_loop_stop, loop);
    loop_timer_start(t, max_ms, 0);
    loop_run(loop);
    loop_timer_free(t);
}
