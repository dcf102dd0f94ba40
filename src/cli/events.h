/*
 * Follows the events of the daemon, also across its restart.
 */
#pragma once

#include "cli/client.h"

struct events_follow {
    const char *machine; /* id; NULL: all machines */
    const char *type;    /* NULL: all types */
    bool past;           /* only events that are kept, oldest first; then end */
    long long after;     /* id of the last event that was seen; 0: new events only, unless `past` */
    /* Called for each event. -1 with *err ends. */
    int (*event)(void *arg, const json_t *event, struct err *err);
    /* NULL, or called when events may have been missed: at the start and after a lost connection.
     */
    int (*connected)(void *arg, struct err *err);
    void *arg;
};

/* Follows until an error, or with `past` until the last event. */
int events_follow(struct client *c, struct events_follow *f, struct err *err);
