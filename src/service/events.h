/*
 * Events of machines and commands, in order and resumable by id.
 *
 * A watcher is only notified that there are new events. It reads them from the store at its own
 * pace, so a slow watcher costs nothing.
 */
#pragma once

#include "service/service.h"

struct event_watch {
    void (*changed)(void *arg);
    void *arg;
    struct service *of; /* private to the service, like the next two */
    struct event_watch *next, **at;
};

void service_events_watch(struct service *s, struct event_watch *w);
void service_events_unwatch(struct event_watch *w);

struct events_request {
    int64_t after;       /* id of the last event seen */
    const char *machine; /* id of a machine; NULL: all machines of the caller */
    const char *type;
    size_t limit;
};
int service_events(struct service *s, const struct caller *who, const struct events_request *r,
                   struct event_list *ret, struct err *err);
/* Adds the JSON object of an event, as clients get it. False: it is larger than EVENT_JSON_MAX. */
enum { EVENT_JSON_MAX = 2 << 20 };
bool event_json(const struct event_row *e, struct buf *to);
/* The id of the newest event. */
int64_t service_events_last(struct service *s);
