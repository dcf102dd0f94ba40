/*
 * Counters of the network gate over all machines, since the daemon started.
 */
#pragma once

#include <stdint.h>

struct gate_stats {
    uint64_t open; /* number of open connections */
    uint64_t allowed, denied, refused, lookups, sent, received, overflows;
};
