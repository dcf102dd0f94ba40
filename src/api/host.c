#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/bodies.h"
#include "api/route.h"
#include "base/defer.h"
#include "io/sse.h"
#include "service/events.h"

void api_health(struct call *c) {
    call_text(c, 200, "text/plain", "ok\n", 3);
}

/* ---- events ---- */

enum { EVENTS_PAGE = 100, HEARTBEAT_MS = 15000, EVENT_MAX = 2 << 20 };

struct watching {
    struct call *call;
    struct event_watch watch;
    struct events_request request;
    bool follow;
};

static void watching_free(struct watching *w) {
    service_events_unwatch(&w->watch);
    free(w);
}

static bool send_event(struct call *c, const struct event_row *e) {
    struct buf text DEFER(buf_done) = BUF(EVENT_MAX), out DEFER(buf_done) = BUF(2 * EVENT_MAX);
    struct jot j = JOT(&text);
    char id[24];
    snprintf(id, sizeof(id), "%" PRId64, e->id);
    jot_object(&j, NULL);
    jot_i64(&j, "id", e->id);
    jot_string(&j, "type", e->type);
    jot_i64(&j, "time_ms", e->time_ms);
    if (e->machine[0])
        jot_string(&j, "machine", e->machine);
    jot_string(&j, "owner", e->owner);
    if (e->json && e->json[0])
        jot_raw(&j, "detail", e->json);
    jot_end(&j, '}');
    const struct sse_event event = {
        .id = id, .name = e->type, .data = text.data, .n = text.len};
    return !sse_put(&out, &event) || call_write(c, out.data, out.len);
}

static void events_go_on(struct watching *w) {
    struct call *c = w->call;
    for (;;) {
        struct event_list list DEFER(event_list_done) = {0};
        struct err err;
        if (service_events(c->service, &c->who, &w->request, &list, &err) < 0) {
            watching_free(w);
            call_error(c, &err);
            return;
        }
        for (size_t i = 0; i < list.count; i++) {
            w->request.after = list.rows[i].id;
            if (!send_event(c, &list.rows[i]))
                return; /* on_drain goes on */
        }
        if (list.count == EVENTS_PAGE)
            continue;
        if (w->follow)
            return;
        watching_free(w);
        call_end(c);
        return;
    }
}

static void events_changed(void *arg) {
    events_go_on(arg);
}

static void events_drained(struct call *c) {
    events_go_on(c->user);
}

static void events_gone(struct call *c) {
    watching_free(c->user);
    call_end(c);
}

static int64_t last_seen(struct call *c) {
    struct http_text last = http_field_only(c->http->head, "Last-Event-ID");
    uint64_t after = 0;
    char text[24];
    struct err err;
    if (call_query(c, "after"))
        call_number(c, "after", 0, INT64_MAX, &after, &err);
    else if (last.s && last.n < sizeof(text)) {
        snprintf(text, sizeof(text), "%.*s", (int)last.n, last.s);
        after = (uint64_t)strtoull(text, NULL, 10);
    } else if (!call_query(c, "follow") || call_flag(c, "follow")) {
        return service_events_last(c->service);
    }
    return (int64_t)after;
}

void api_events(struct call *c) {
    struct watching *w = calloc(1, sizeof(*w));
    if (!w)
        abort();
    *w = (struct watching){
        .call = c,
        .watch = {.changed = events_changed, .arg = w},
        .request = {.after = last_seen(c),
                    .machine = call_query(c, "machine"),
                    .type = call_query(c, "type"),
                    .limit = EVENTS_PAGE},
        .follow = !call_query(c, "follow") || call_flag(c, "follow"),
    };
    c->user = w;
    c->on_gone = events_gone;
    c->on_drain = events_drained;
    call_begin(c, 200, "text/event-stream", NULL);
    call_write(c, ": carrel\n\n", 10);
    service_events_watch(c->service, &w->watch);
    events_go_on(w);
}
