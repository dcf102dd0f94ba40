/* Logs and reports when the disk of the store fills up, and when it has space again. */
#include <inttypes.h>

#include "base/log.h"
#include "service/state.h"

enum { WARN_PERCENT = 90, CALM_PERCENT = 88 };

static void tell_full(struct service *s, bool full) {
    if (full == s->store_full)
        return;
    s->store_full = full;
    log_line(full ? LOG_ERROR : LOG_NOTE, "service",
             full ? "the disk that holds CARREL_HOME is full: only requests that read or free "
                    "space are served"
                  : "the disk that holds CARREL_HOME has free space again");
}

static void warn(struct service *s, const struct store_room *room) {
    bool was = s->store_scarce;
    s->store_scarce = room->used_percent >= (was ? CALM_PERCENT : WARN_PERCENT);
    if (s->store_scarce && !was)
        log_line(LOG_WARN, "service",
                 "the disk that holds CARREL_HOME is %u %% full: %" PRIu64 " MiB are left",
                 room->used_percent, room->free_bytes >> 20);
}

bool room_is_scarce(const struct store_room *room) {
    return room->full || room->used_percent >= WARN_PERCENT;
}

void room_look(struct service *s) {
    struct store_room room;
    store_look(s->store);
    store_room(s->store, &room);
    warn(s, &room);
    tell_full(s, room.full);
}
