#include "service/events.h"

#include "service/state.h"

void service_events_watch(struct service *s, struct event_watch *w) {
    w->of = s;
    w->next = s->watches;
    w->at = &s->watches;
    if (w->next)
        w->next->at = &w->next;
    s->watches = w;
}

void service_events_unwatch(struct event_watch *w) {
    if (!w->of)
        return;
    if (w->of->walk == w)
        w->of->walk = w->next;
    *w->at = w->next;
    if (w->next)
        w->next->at = w->at;
    w->of = NULL;
}

int service_events(struct service *s, const struct caller *who, const struct events_request *r,
                   struct event_list *ret, struct err *err) {
    if (allow(who, SCOPE_READ, err) < 0)
        return -1;
    struct event_filter filter = {
        .owner = who->scopes & SCOPE_ADMIN ? NULL : who->owner,
        .machine = r->machine,
        .type = r->type,
        .limit = r->limit,
    };
    return store_event_list(s->store, r->after, &filter, ret, err);
}

bool event_json(const struct event_row *e, struct buf *to) {
    struct jot j = JOT(to);
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
    return !j.failed;
}

int64_t service_events_last(struct service *s) {
    int64_t oldest, newest;
    struct err err;
    return store_event_range(s->store, &oldest, &newest, &err) < 0 ? 0 : newest;
}
