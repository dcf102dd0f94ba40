/*
 * A viewer of the desktop of a machine: RFB in both directions, checked (io/screen/rfb_viewer.h).
 *
 * The desktop must run. A side that reads slowly slows the other one down: what one side sent waits
 * in a bounded buffer here.
 */
#pragma once

#include "base/buf.h"
#include "service/service.h"

enum { DESKTOP_WATCHES = 8 }; /* viewers of one machine */

struct desktop_watch;

struct desktop_watch_events {
    void *arg;
    /* There is more in desktop_watch_shown(). */
    void (*shown)(void *arg);
    /* The desktop has read input: see desktop_watch_is_full(). */
    void (*room)(void *arg);
    /* The last event: the connection has ended, and the watch is freed after it. */
    void (*ended)(void *arg, const struct err *err);
};

/* NULL with *err: refused. */
struct desktop_watch *service_desktop_watch(struct service *s, const struct caller *who,
                                            const char *machine,
                                            const struct desktop_watch_events *events,
                                            struct err *err);

/* Bytes for the viewer: the caller drops what it has sent, and then calls desktop_watch_sent(). */
struct buf *desktop_watch_shown(struct desktop_watch *w);
void desktop_watch_sent(struct desktop_watch *w);

/* Takes bytes of the viewer, also when full. -1: close the connection to the viewer. */
int desktop_watch_take(struct desktop_watch *w, const void *bytes, size_t n, struct err *err);
/* True: the desktop did not read all input yet. */
bool desktop_watch_is_full(const struct desktop_watch *w);

/* The viewer has left: no more events follow. Do not call it from an event. */
void desktop_watch_cancel(struct desktop_watch *w);
