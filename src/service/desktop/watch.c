#include "service/desktop/watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/wire/msg.h"
#include "io/screen/rfb_viewer.h"
#include "service/cells.h"
#include "service/desktop/desktop.h"
#include "service/exec/tool_run.h"
#include "service/state.h"

/* The machine sends no more than MSG_WINDOW_DEFAULT bytes that desktop_watch_sent() has not let
 * pass, so the buffer does not fill. */
enum { SHOWN_MAX = 2 * MSG_WINDOW_DEFAULT };

struct desktop_watch {
    struct desktop_watch *next;
    struct service *service;
    char machine[ID_SIZE];
    struct desktop_watch_events events;
    struct tool_run *tool;     /* the way into the machine */
    struct rfb *rfb;           /* towards its server */
    struct rfb_viewer *viewer; /* NULL before the handshake with it */
    struct buf shown;
    uint64_t owed; /* bytes of the machine that may be followed by as many others */
};

static void watch_free(struct desktop_watch *w) {
    struct desktop_watch **at = &w->service->desktop_watches;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    rfb_viewer_free(w->viewer);
    rfb_free(w->rfb);
    buf_done(&w->shown);
    free(w);
}

static void watch_flush(struct desktop_watch *w) {
    struct buf *out = rfb_out(w->rfb);
    if (out->len)
        buf_drop(out, tool_feed(w->tool, out->data, out->len, false));
}

static void watch_data(void *arg, const uint8_t *p, uint32_t n) {
    struct desktop_watch *w = arg;
    struct err err;
    w->owed += n;
    if (rfb_take(w->rfb, p, n, &err) < 0) {
        tool_stop(w->tool, &err);
        return;
    }
    watch_flush(w);
    if (!w->viewer && rfb_is_ready(w->rfb))
        w->viewer = rfb_viewer_new(w->rfb, &w->shown);
    w->events.shown(w->events.arg);
}

static void watch_room(void *arg) {
    struct desktop_watch *w = arg;
    watch_flush(w);
    w->events.room(w->events.arg);
}

static void watch_ended(void *arg, int status, const char *answer, const char *said,
                        const struct err *failed) {
    struct desktop_watch *w = arg;
    long number = status == MSG_TOOL_DONE ? 0 : strtol(said, NULL, 10);
    struct err err;
    (void)answer;
    if (!failed && (number == ENOENT || number == ECONNREFUSED)) {
        err_set(&err, ERR_BUSY, "the desktop of machine '%s' does not run", w->machine);
        err_remedy(&err, "start it: carrel desktop %s start", w->machine);
    } else if (!failed) {
        err_set(&err, ERR_BUSY, "the desktop of machine '%s' has ended", w->machine);
    }
    w->events.ended(w->events.arg, failed ? failed : &err);
    watch_free(w);
}

static const struct live *watch_check(struct service *s, const struct caller *who,
                                      const char *machine, struct err *err) {
    size_t watches = 0;
    const struct live *l = live_find(s, who, machine, LIVE_ANY, err);
    if (!l || cell_refuse(l, "desktops", err) < 0)
        return NULL;
    for (const struct desktop_watch *w = s->desktop_watches; w; w = w->next)
        watches += strcmp(w->machine, l->row.id) == 0;
    if (watches >= DESKTOP_WATCHES) {
        err_set(err, ERR_LIMIT, "machine '%s' already has %d viewers of its desktop, the limit",
                machine, DESKTOP_WATCHES);
        return NULL;
    }
    return l;
}

struct desktop_watch *service_desktop_watch(struct service *s, const struct caller *who,
                                            const char *machine,
                                            const struct desktop_watch_events *events,
                                            struct err *err) {
    const char *const argv[] = {"connect", DESKTOP_SOCKET, NULL};
    const struct live *l = watch_check(s, who, machine, err);
    if (!l)
        return NULL;
    struct desktop_watch *w = xnew(struct desktop_watch);
    *w = (struct desktop_watch){.next = s->desktop_watches,
                                .service = s,
                                .events = *events,
                                .rfb = rfb_new(),
                                .shown = BUF(SHOWN_MAX)};
    s->desktop_watches = w;
    snprintf(w->machine, sizeof(w->machine), "%s", l->row.id);
    const struct tool_events of_tool = {
        .arg = w, .data = watch_data, .room = watch_room, .ended = watch_ended};
    w->tool = service_tool(s, who, machine, "desktop.watch", argv, NULL, &of_tool, err);
    if (w->tool)
        return w;
    watch_free(w);
    return NULL;
}

struct buf *desktop_watch_shown(struct desktop_watch *w) {
    return &w->shown;
}

void desktop_watch_sent(struct desktop_watch *w) {
    if (w->owed && !w->shown.len) {
        tool_consumed(w->tool, w->owed);
        w->owed = 0;
    }
}

int desktop_watch_take(struct desktop_watch *w, const void *bytes, size_t n, struct err *err) {
    if (!w->viewer)
        return err_set(err, ERR_INVALID, "the viewer of the desktop spoke before the desktop");
    if (rfb_viewer_take(w->viewer, bytes, n, err) < 0)
        return -1;
    watch_flush(w);
    return 0;
}

bool desktop_watch_is_full(const struct desktop_watch *w) {
    return rfb_out(w->rfb)->len > 0;
}

void desktop_watch_cancel(struct desktop_watch *w) {
    tool_cancel(w->tool);
    watch_free(w);
}
