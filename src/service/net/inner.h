/*
 * The network of a live machine as net/ keeps it. Only files of src/service/net include this
 * header; others call the functions of net/live.h.
 */
#pragma once

#include "service/net/flood.h"
#include "service/net/live.h"
#include "service/state.h"

struct exposures;

struct live_net {
    bool cutting;
    struct loop_call cut;        /* closes its connections, if its taint cannot be stored */
    struct exposures *exposures; /* ports that are shown outside; NULL: none */
    enum { TRUST_NONE, TRUST_GOING, TRUST_THERE } trust; /* in the network's authority */
    bool opening;                                        /* its doors were asked for */
    uint64_t doors_ms;                                   /* when to ask again; 0: not */
    struct flood refusals, entries;                      /* by the gate; through exposed ports */
    struct flood packets;                                /* records of what the kernel refused */
    uint64_t refused_ms; /* when to read again what the kernel refused */
    struct texts env;    /* of its network, as they were asked for last */
};
