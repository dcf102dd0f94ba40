#include "guest/watch.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>

#include "base/err.h"
#include "guest/conn.h"
#include "guest/files.h"
#include "guest/sys.h"

#define EVENTS                                                                          \
    (IN_CREATE | IN_DELETE | IN_MODIFY | IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | \
     IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF)
#define EVENTS_BYTES 4096

/* Does nothing: watch_pump() reads the events after every wake-up of the loop. */
static void on_events(struct guest *g, struct source *src, uint32_t events) {
    (void)g, (void)src, (void)events;
}

static int watcher_open(struct guest *g, struct conn *c) {
    if (c->watcher.fd >= 0)
        return 0;
    c->watcher = (struct source){inotify_init1(IN_CLOEXEC | IN_NONBLOCK), on_events, c};
    return c->watcher.fd < 0 ? -1 : source_add(g, &c->watcher, EPOLLIN | EPOLLET);
}

static int slot_of(const struct conn *c, uint32_t id) {
    for (int i = 0; i < WATCH_MAX; i++)
        if (c->watch_ids[i] == id)
            return i;
    return -1;
}

static int slot_of_wd(const struct conn *c, int wd) {
    for (int i = 0; i < WATCH_MAX; i++)
        if (c->watch_ids[i] && c->watch_wds[i] == wd)
            return i;
    return -1;
}

enum serve_result watch_add(struct guest *g, struct conn *c, const struct frame *f) {
    struct msg_path m;
    SERVE_GET(watch, f, &m);
    int slot = slot_of(c, 0);
    if (f->head.id == 0 || slot < 0 || slot_of(c, f->head.id) >= 0) {
        guest_conn_refuse(
            c, f, slot < 0 ? ERR_LIMIT : ERR_EXISTS,
            "cannot watch the file: too many watches, or the id of the watch is already in use");
        return SERVE_DONE;
    }
    int wd = watcher_open(g, c) < 0 ? -errno : files_watch(c->watcher.fd, &m, EVENTS);
    if (wd < 0) {
        conn_fail(c, f, -wd, "cannot watch the file");
    } else if (slot_of_wd(c, wd) >= 0) {
        guest_conn_refuse(c, f, ERR_EXISTS, "this connection already watches the file");
    } else {
        c->watch_ids[slot] = f->head.id;
        c->watch_wds[slot] = wd;
        conn_ok(c, f, 0);
    }
    return SERVE_DONE;
}

enum serve_result watch_remove(struct guest *g, struct conn *c, const struct frame *f) {
    (void)g;
    int slot = f->head.id ? slot_of(c, f->head.id) : -1;
    if (slot < 0) {
        guest_conn_refuse(c, f, ERR_NOT_FOUND, "cannot end the watch: no watch has this id");
        return SERVE_DONE;
    }
    inotify_rm_watch(c->watcher.fd, c->watch_wds[slot]);
    c->watch_ids[slot] = 0;
    conn_ok(c, f, 0);
    return SERVE_DONE;
}

static void send_event(struct conn *c, const struct inotify_event *e) {
    int slot = slot_of_wd(c, e->wd);
    bool is_lost = e->mask & IN_Q_OVERFLOW;
    if (slot < 0 && !is_lost)
        return;
    struct msg_event m = {.mask = e->mask, .cookie = e->cookie};
    m.name.s = e->name;
    m.name.n = e->len ? (uint32_t)strnlen(e->name, e->len) : 0;
    struct frame_head head = {.type = MSG_EVENT, .id = is_lost ? 0 : c->watch_ids[slot]};
    guest_conn_send(c, &head, &m);
    if (e->mask & IN_IGNORED && !is_lost)
        c->watch_ids[slot] = 0;
}

/*
 * Sends events of watched files to the host. In frames, a buffer full of small events becomes at
 * most 3 times larger, which REPLY_ROOM allows for.
 */
void watch_pump(struct guest *g, struct conn *c) {
    (void)g;
    char events[EVENTS_BYTES] __attribute__((aligned(8)));
    ssize_t n;
    while (c->watcher.fd >= 0 && conn_has_room(c) &&
           (n = read(c->watcher.fd, events, sizeof(events))) > 0) {
        for (char *at = events; at < events + n;) {
            const struct inotify_event *e = (const struct inotify_event *)at;
            send_event(c, e);
            at += sizeof(*e) + e->len;
        }
    }
}

void watch_close(struct guest *g, struct conn *c) {
    source_close(g, &c->watcher);
    memset(c->watch_ids, 0, sizeof(c->watch_ids));
}
