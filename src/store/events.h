/*
 * Events of machines and images in order, for clients that watch them.
 *
 * Ids only grow, also across restarts, so a watcher continues after the last id that it has seen.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "store/db.h"

struct event_row {
    int64_t id;
    int64_t time_ms;
    char machine[ID_SIZE]; /* empty: not about a machine */
    char owner[STORE_NAME_SIZE];
    char type[32]; /* "machine.created" */
    char *json;    /* one JSON object; NULL: {} */
};

struct event_list {
    struct event_row *rows;
    size_t count;
};

/* A member that is NULL matches all events. */
struct event_filter {
    const char *owner;
    const char *machine;
    const char *type;
    size_t limit; /* 1 to STORE_PAGE_MAX; 0: 100 */
};

void event_row_done(struct event_row *row);
void event_list_done(struct event_list *list);

int store_event_add(struct store *s, const struct event_row *row, int64_t *ret_id, struct err *err);

/* Lists events with an id greater than `after`, oldest first. */
int store_event_list(struct store *s, int64_t after, const struct event_filter *filter,
                     struct event_list *ret, struct err *err);

/*
 * Returns the range of ids; 0, 0: no events. A watcher has missed events if it continues after an
 * id less than oldest - 1.
 */
int store_event_range(struct store *s, int64_t *ret_oldest, int64_t *ret_newest, struct err *err);

/*
 * Deletes events before that time and all but the newest `keep`, but never the newest one; at most
 * 10,000 per call.
 */
int store_event_trim(struct store *s, int64_t before_ms, uint64_t keep, struct err *err);
