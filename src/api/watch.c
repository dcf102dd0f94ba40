/* Reports changes of a path in a machine as server-sent events. */
#include <stdlib.h>
#include <sys/inotify.h>

#include "api/file_words.h"
#include "api/route.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "io/sse.h"
#include "service/files.h"

struct watcher {
    struct call *call;
    struct file_watch watch;
};

static const struct {
    uint32_t bit;
    const char *name;
} changes[] = {
    {IN_CREATE, "created"},      {IN_MODIFY, "modified"},       {IN_CLOSE_WRITE, "written"},
    {IN_DELETE, "removed"},      {IN_MOVED_FROM, "moved_from"}, {IN_MOVED_TO, "moved_to"},
    {IN_ATTRIB, "attributes"},   {IN_DELETE_SELF, "gone"},      {IN_MOVE_SELF, "gone"},
    {IN_Q_OVERFLOW, "overflow"},
};

static const char *change_name(uint32_t mask) {
    for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++)
        if (mask & changes[i].bit)
            return changes[i].name;
    return "other";
}

static void watcher_free(struct watcher *w, const struct err *why) {
    service_file_unwatch(&w->watch, why);
    free(w);
}

static void watch_ready(void *arg) {
    struct watcher *w = arg;
    call_begin(w->call, 200, "text/event-stream", NULL);
    call_write(w->call, ": watching\n\n", 12);
}

/* Sends an event without flow control: the HTTP server drops a client that does not read. */
static void watch_event(void *arg, const struct msg_event *m) {
    struct watcher *w = arg;
    struct buf text DEFER(buf_done) = BUF(16384), out DEFER(buf_done) = BUF(32768);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "change", change_name(m->mask));
    if (m->name.n)
        jot_string(&j, "name", m->name.s);
    jot_bool(&j, "directory", m->mask & IN_ISDIR);
    if (m->cookie)
        jot_u64(&j, "cookie", m->cookie);
    jot_end(&j, '}');
    const struct sse_event event = {.name = change_name(m->mask), .data = text.data, .n = text.len};
    if (sse_put(&out, &event))
        call_write(w->call, out.data, out.len);
}

static void watch_ended(void *arg, const struct err *err) {
    struct watcher *w = arg;
    struct call *c = w->call;
    struct err named = *err;
    watcher_free(w, &named);
    c->on_gone = NULL;
    if (c->streaming) {
        call_end(c);
        return;
    }
    err_wrap(&named, "cannot watch '%.200s'", call_query(c, "path"));
    call_error(c, &named);
}

static void watch_gone(struct call *c) {
    watcher_free(c->user, NULL);
    call_abandon(c);
}

void api_file_watch(struct call *c) {
    struct msg_path m;
    struct err err;
    if (file_words(c, &m) < 0)
        return;
    struct watcher *w = xnew(struct watcher);
    w->call = c;
    w->watch.inner = (struct guest_watch){
        .arg = w, .ready = watch_ready, .event = watch_event, .ended = watch_ended};
    c->user = w;
    c->on_gone = watch_gone;
    if (service_file_watch(c->service, &c->who, c->params[0], &m, &w->watch, &err) < 0) {
        free(w);
        c->on_gone = NULL;
        call_error(c, &err);
    }
}
