#include "api/e2b/watches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include "api/e2b/entries.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "base/id.h"
#include "service/files.h"

enum {
    SPOTS_MAX = 64,          /* directories that one watch covers */
    EVENTS_MAX = 4096,       /* events that wait for a client */
    POLLED_MAX = 64,         /* watches of one machine that poll */
    POLLED_IDLE_MS = 600000, /* a watch that nobody polls ends then */
    UNREAD_MAX = 4 << 20,    /* bytes that a client may leave unread */
    WATCH_PAGE = 1000,
};

/* A directory that a machine watches. */
struct spot {
    struct watches *all;
    struct file_watch watch;
    char machine[ID_SIZE];
    char path[ENVD_PATH_SIZE];
    bool ready; /* the machine has answered */
    bool alive;
    uint32_t upload; /* cookie of the rename of an upload that has begun; 0: none */
    bool upload_is_new;
    struct tap *taps;
    struct spot *next;
};

/* A directory of one watcher. */
struct tap {
    struct spot *spot;
    struct watcher *watcher;
    char *prefix; /* of names: "" or "below/" */
    struct tap *next_here, *next_of_watcher;
};

struct change {
    char *name;
    const char *type;
};

struct watcher {
    struct watches *all;
    struct service *service;
    struct caller who;
    char machine[ID_SIZE];
    struct envd_call *call; /* the stream, or the request that makes it; NULL: it polls */
    char id[ID_SIZE];       /* of one that polls */
    char base[ENVD_PATH_SIZE];
    bool streams, recursive, entries;
    bool started; /* the client was told */
    bool over;    /* ends when nothing is under way */
    bool cut;     /* ends without a last message */
    struct err why;
    unsigned flying; /* messages to the machine that were not answered */
    struct tap *taps;
    unsigned tap_count;
    char *dirs[SPOTS_MAX]; /* directories to add, as prefixes; the first is under way */
    unsigned dir_count;
    uint64_t page;
    struct change *changes; /* not told yet */
    size_t change_count;
    bool settling, again; /* watcher_settle() runs; it was called meanwhile */
    bool telling;         /* the entry of the first change is looked at */
    uint64_t polled_ms;
    struct watcher *next, **at;
};

struct watches {
    struct loop *loop;
    struct service *service;
    struct spot *spots;
    struct watcher *watchers;
};

static void watcher_settle(struct watcher *w);

static void watcher_fail(struct watcher *w, const struct err *why) {
    if (!w->over)
        w->why = *why;
    w->over = true;
}

/* ---- what the machine reports ---- */

static const struct {
    uint32_t bit;
    const char *type;
} kinds[] = {
    {IN_CREATE, "EVENT_TYPE_CREATE"},     {IN_MOVED_TO, "EVENT_TYPE_CREATE"},
    {IN_MODIFY, "EVENT_TYPE_WRITE"},      {IN_DELETE, "EVENT_TYPE_REMOVE"},
    {IN_MOVED_FROM, "EVENT_TYPE_RENAME"}, {IN_ATTRIB, "EVENT_TYPE_CHMOD"},
};

static void change_add(struct watcher *w, const char *prefix, const struct msg_event *m) {
    const char *type = NULL;
    struct err why;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds) && !type; i++)
        if (m->mask & kinds[i].bit)
            type = kinds[i].type;
    if (!type || !m->name.n || w->over)
        return;
    if (w->change_count == EVENTS_MAX) {
        err_set(&why, ERR_LIMIT, "more than %d events wait for the client", EVENTS_MAX);
        watcher_fail(w, &why);
        return;
    }
    w->changes = xrealloc(w->changes, w->change_count + 1, sizeof(*w->changes));
    w->changes[w->change_count++] =
        (struct change){xformat("%s%.*s", prefix, (int)m->name.n, m->name.s), type};
}

/* Adds a directory to a recursive watch. */
static void dir_add(struct watcher *w, char *prefix) {
    struct err why;
    if (w->dir_count < SPOTS_MAX && w->tap_count + w->dir_count < SPOTS_MAX) {
        w->dirs[w->dir_count++] = prefix;
        return;
    }
    free(prefix);
    err_set(&why, ERR_LIMIT, "a watch covers at most %d directories", SPOTS_MAX);
    watcher_fail(w, &why);
}

static void tap_drop(struct tap *t);

static void spot_stop(struct spot *s, const struct err *why) {
    service_file_unwatch(&s->watch, why);
    s->alive = false;
}

/* The directory of a tap vanished. One below is left out from then on. */
static void tap_vanished(struct tap *t) {
    struct watcher *w = t->watcher;
    struct err why;
    if (*t->prefix) {
        tap_drop(t);
        return;
    }
    err_set(&why, ERR_NOT_FOUND, "the directory '%.200s' was removed", w->base);
    watcher_fail(w, &why);
}

static bool name_begins(const struct msg_str *name, const char *prefix) {
    return name->n >= strlen(prefix) && memcmp(name->s, prefix, strlen(prefix)) == 0;
}

/* True for an event about the temporary file of an upload. */
static bool upload_hides(struct spot *s, const struct msg_event *m) {
    bool is_new = name_begins(&m->name, WATCH_HIDES_NEW);
    if (!is_new && !name_begins(&m->name, WATCH_HIDES_OLD))
        return false;
    if (m->mask & IN_MOVED_FROM) {
        s->upload = m->cookie;
        s->upload_is_new = is_new;
    }
    return true;
}

/* An upload that is renamed to its place is told as a write. */
static void event_add(struct tap *t, const struct msg_event *m) {
    struct msg_event written = {.mask = IN_MODIFY, .name = m->name};
    bool is_upload = m->mask & IN_MOVED_TO && m->cookie && m->cookie == t->spot->upload;
    if (!is_upload || t->spot->upload_is_new)
        change_add(t->watcher, t->prefix, m);
    if (is_upload)
        change_add(t->watcher, t->prefix, &written);
}

/* Dropping the last tap frees the spot: nothing touches it after the loop. */
static void spot_event(void *arg, const struct msg_event *m) {
    struct spot *s = arg;
    struct err why;
    bool dir = m->mask & IN_ISDIR && m->mask & (IN_CREATE | IN_MOVED_TO) && m->name.n;
    if (upload_hides(s, m))
        return;
    if (m->mask & (IN_DELETE_SELF | IN_MOVE_SELF))
        spot_stop(s, NULL); /* a new directory of this path gets a spot of its own */
    for (struct tap *t = s->taps, *next; t; t = next) {
        struct watcher *w = t->watcher;
        next = t->next_here;
        if (m->mask & IN_Q_OVERFLOW) {
            err_set(&why, ERR_LIMIT, "events were lost: they came faster than they were read");
            watcher_fail(w, &why);
        }
        event_add(t, m);
        if (dir && w->recursive && !w->over)
            dir_add(w, xformat("%s%.*s/", t->prefix, (int)m->name.n, m->name.s));
        if (m->mask & (IN_DELETE_SELF | IN_MOVE_SELF))
            tap_vanished(t);
        watcher_settle(w);
    }
}

static void spot_ready(void *arg) {
    struct spot *s = arg;
    s->ready = true;
    for (struct tap *t = s->taps, *next; t; t = next) {
        next = t->next_here;
        watcher_settle(t->watcher);
    }
}

/* The machine refused or lost the watch. A directory below may have vanished meanwhile. */
static void spot_ended(void *arg, const struct err *err) {
    struct spot *s = arg;
    struct err why = *err;
    err_wrap(&why, "'%.200s'", s->path); /* the guest's words name no path */
    s->ready = true;
    spot_stop(s, &why);
    for (struct tap *t = s->taps, *next; t; t = next) {
        struct watcher *w = t->watcher;
        next = t->next_here;
        if (!*t->prefix || why.code != ERR_NOT_FOUND) {
            watcher_fail(w, &why);
            w->cut = w->streams && w->started; /* its machine ended */
        }
        watcher_settle(w);
    }
}

/* ---- spots ---- */

static struct spot *spot_find(struct watches *all, const char *machine, const char *path) {
    for (struct spot *s = all->spots; s; s = s->next)
        if (s->alive && strcmp(s->machine, machine) == 0 && strcmp(s->path, path) == 0)
            return s;
    return NULL;
}

static struct spot *spot_new(struct watcher *w, const char *path, struct err *err) {
    struct spot *s = xnew(struct spot);
    s->all = w->all;
    s->watch.inner = (struct guest_watch){
        .arg = s, .ready = spot_ready, .event = spot_event, .ended = spot_ended};
    snprintf(s->machine, sizeof(s->machine), "%s", w->machine);
    snprintf(s->path, sizeof(s->path), "%s", path);
    const struct msg_path m = {
        .uid = MSG_ID_NONE, .gid = MSG_ID_NONE, .path = {s->path, (uint32_t)strlen(s->path)}};
    if (service_file_watch(w->service, &w->who, w->machine, &m, &s->watch, err) < 0) {
        free(s);
        return NULL;
    }
    s->alive = !s->ready; /* an end that was told at once says that it is ready */
    s->next = w->all->spots;
    w->all->spots = s;
    return s;
}

static void spot_drop(struct spot *s) {
    struct spot **at = &s->all->spots;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    service_file_unwatch(&s->watch, NULL);
    free(s);
}

static struct tap *tap_add(struct watcher *w, const char *prefix, struct err *err) {
    char path[ENVD_PATH_SIZE];
    size_t n =
        (size_t)snprintf(path, sizeof(path), "%s/%s", strcmp(w->base, "/") ? w->base : "", prefix);
    if (n >= sizeof(path)) {
        err_set(err, ERR_INVALID, "path '%.100s' is too long", prefix);
        return NULL;
    }
    if (n > 1 && path[n - 1] == '/')
        path[n - 1] = '\0';
    struct spot *s = spot_find(w->all, w->machine, path);
    if (!s)
        s = spot_new(w, path, err);
    if (!s)
        return NULL;
    struct tap *t = xnew(struct tap);
    *t = (struct tap){s, w, xstrdup(prefix), s->taps, w->taps};
    s->taps = w->taps = t;
    w->tap_count++;
    return t;
}

static void tap_drop(struct tap *t) {
    struct tap **at = &t->spot->taps, **of = &t->watcher->taps;
    while (*at != t)
        at = &(*at)->next_here;
    *at = t->next_here;
    while (*of != t)
        of = &(*of)->next_of_watcher;
    *of = t->next_of_watcher;
    t->watcher->tap_count--;
    if (!t->spot->taps)
        spot_drop(t->spot);
    free(t->prefix);
    free(t);
}

/* ---- the end ---- */

static void watcher_free(struct watcher *w) {
    while (w->taps)
        tap_drop(w->taps);
    for (unsigned i = 0; i < w->dir_count; i++)
        free(w->dirs[i]);
    for (size_t i = 0; i < w->change_count; i++)
        free(w->changes[i].name);
    free(w->changes);
    *w->at = w->next;
    if (w->next)
        w->next->at = w->at;
    free(w);
}

static void watcher_end(struct watcher *w) {
    struct envd_call *c = w->call;
    struct err why = w->why;
    bool cut = w->cut;
    watcher_free(w);
    if (c && cut)
        envd_drop(c);
    else if (c)
        envd_fail_with(c, &why);
}

/* ---- telling the client ---- */

static void change_drop(struct watcher *w) {
    free(w->changes[0].name);
    memmove(w->changes, w->changes + 1, --w->change_count * sizeof(*w->changes));
}

static void change_put(struct jot *j, const char *object, const struct change *h) {
    jot_object(j, object);
    jot_string(j, "name", h->name);
    jot_string(j, "type", h->type);
}

static void change_tell(struct watcher *w, const struct entry *e) {
    struct buf text DEFER(buf_done) = BUF(64 << 10);
    struct jot j = JOT(&text);
    struct err why;
    jot_object(&j, NULL);
    change_put(&j, "filesystem", &w->changes[0]);
    if (e)
        entry_put(&j, "entry", w->call, e);
    jot_end(&j, '}');
    jot_end(&j, '}');
    envd_send(w->call, &j, &text);
    change_drop(w);
    if (http_pending(w->call->http) > UNREAD_MAX) {
        err_set(&why, ERR_LIMIT, "the client does not read the events");
        watcher_fail(w, &why);
        w->cut = true;
    }
}

static void change_looked(void *arg, const struct entry *e, const struct err *err) {
    struct watcher *w = arg;
    (void)err; /* it may be gone already: then it is told without the entry */
    w->flying--;
    w->telling = false;
    if (!w->over)
        change_tell(w, e);
    watcher_settle(w);
}

/* Only what still exists has an entry. */
static bool wants_entry(const struct watcher *w) {
    const char *type = w->changes[0].type;
    return w->entries && strcmp(type, "EVENT_TYPE_REMOVE") != 0 &&
           strcmp(type, "EVENT_TYPE_RENAME") != 0;
}

static void watcher_tell(struct watcher *w) {
    char path[ENVD_PATH_SIZE];
    while (w->change_count && !w->telling && !w->over) {
        if (!wants_entry(w)) {
            change_tell(w, NULL);
            continue;
        }
        snprintf(path, sizeof(path), "%s/%s", strcmp(w->base, "/") ? w->base : "",
                 w->changes[0].name);
        w->telling = true;
        w->flying++;
        entry_find(w->call, path, change_looked, w);
        return;
    }
}

static void watcher_start(struct watcher *w) {
    struct buf text DEFER(buf_done) = BUF(256);
    struct jot j = JOT(&text);
    struct envd_call *c = w->call;
    w->started = true;
    jot_object(&j, NULL);
    if (w->streams) {
        jot_object(&j, "start");
        jot_end(&j, '}');
        jot_end(&j, '}');
        c->keepalive = "{\"keepalive\":{}}";
        envd_begin(c);
        envd_send(c, &j, &text);
        return;
    }
    jot_string(&j, "watcherId", w->id);
    jot_end(&j, '}');
    w->call = NULL;
    c->on_gone = NULL;
    w->polled_ms = loop_now_ms(w->all->loop);
    envd_answer(c, &j, &text);
}

/* ---- directories, one after the other ---- */

static void dir_done(struct watcher *w) {
    free(w->dirs[0]);
    memmove(w->dirs, w->dirs + 1, --w->dir_count * sizeof(*w->dirs));
    w->page = 0;
}

/*
 * An entry of a directory that came after the start: it may have been made before the directory was
 * watched, as by `mkdir -p`. Those that a client does not fetch are not told beyond the half of
 * what may wait, so that a large directory does not end its watch.
 */
static void dir_found(struct watcher *w, const struct msg_entry *m) {
    const struct msg_event made = {.mask = IN_CREATE, .name = m->name};
    if (w->started && w->change_count < EVENTS_MAX / 2)
        change_add(w, w->dirs[0], &made);
    if (S_ISDIR(m->mode) && !w->over)
        dir_add(w, xformat("%s%s/", w->dirs[0], m->name.s));
}

static void page_came(void *arg, const struct frame *frame, const struct err *err) {
    struct watcher *w = arg;
    struct msg_list_page page = {0};
    struct msg_entry m;
    w->flying--;
    if (!err && !w->over && msg_get_list_page(frame, &page) == 0)
        while (!w->over && msg_entry_next(&page.entries, &m) > 0)
            dir_found(w, &m);
    w->page = page.next;
    if (!w->page)
        dir_done(w);
    watcher_settle(w);
}

static void dir_list(struct watcher *w, const struct spot *s) {
    const struct msg_list m = {.uid = MSG_ID_NONE,
                               .gid = MSG_ID_NONE,
                               .cookie = w->page,
                               .max = WATCH_PAGE,
                               .path = {s->path, (uint32_t)strlen(s->path)}};
    w->flying++;
    service_file(w->service, &w->who, w->machine, MSG_LIST, &m, NULL, page_came, w);
}

static struct tap *tap_of(const struct watcher *w, const char *prefix) {
    struct tap *t = w->taps;
    while (t && strcmp(t->prefix, prefix) != 0)
        t = t->next_of_watcher;
    return t;
}

/* Watches the first directory of the list, and then lists it if the watch is recursive. */
static void dirs_go_on(struct watcher *w) {
    struct err why;
    while (w->dir_count && !w->flying && !w->over) {
        struct tap *t = tap_of(w, w->dirs[0]);
        if (!t && !(t = tap_add(w, w->dirs[0], &why))) {
            watcher_fail(w, &why);
            return;
        }
        if (!t->spot->ready)
            return;
        if (w->recursive && t->spot->alive) {
            dir_list(w, t->spot);
            return;
        }
        if (!t->spot->alive) /* it vanished meanwhile */
            tap_drop(t);
        dir_done(w);
    }
}

static void watcher_step(struct watcher *w) {
    if (!w->over)
        dirs_go_on(w);
    if (!w->over && !w->started && !w->dir_count && w->tap_count)
        watcher_start(w);
    if (!w->over && w->started && w->call)
        watcher_tell(w);
}

/* Does what can be done next. It may free the watcher, but never while it runs further up. */
static void watcher_settle(struct watcher *w) {
    w->again = true;
    if (w->settling)
        return;
    w->settling = true;
    while (w->again) {
        w->again = false;
        watcher_step(w);
    }
    w->settling = false;
    if (w->over && !w->flying && (w->call || !w->started))
        watcher_end(w);
}

/* ---- procedures ---- */

static void watcher_gone(struct envd_call *c) {
    struct watcher *w = c->state;
    struct err why;
    err_set(&why, ERR_GONE, "the client left");
    watcher_fail(w, &why);
    w->cut = true;
    watcher_settle(w);
}

static void base_seen(void *arg, const struct frame *frame, const struct err *err) {
    struct watcher *w = arg;
    struct msg_entry e;
    struct err bad;
    bool fails = true;
    w->flying--;
    if (err) { /* the guest's words name no path */
        bad = *err;
        err_wrap(&bad, "'%.200s'", w->base);
    } else if (msg_get_entry(frame, &e) < 0 || !S_ISDIR(e.mode)) {
        err_set(&bad, ERR_INVALID, "path is not a directory: %.200s", w->base);
    } else {
        fails = false;
    }
    if (fails)
        watcher_fail(w, &bad);
    else if (!w->over)
        dir_add(w, xstrdup(""));
    watcher_settle(w);
}

static int watcher_read(struct watcher *w, const json_t *json, const char *home, struct err *err) {
    const json_t *path = json_object_get(json, "path");
    unsigned polled = 0;
    for (const struct watcher *o = w->all->watchers; o; o = o->next)
        polled += !o->streams && strcmp(o->machine, w->machine) == 0;
    if (!w->streams && polled >= POLLED_MAX)
        return err_set(err, ERR_LIMIT, "more than %d watches of the sandbox", POLLED_MAX);
    w->recursive = json_is_true(json_object_get(json, "recursive"));
    w->entries = w->streams && json_is_true(json_object_get(json, "includeEntry"));
    if (path && !json_is_string(path))
        return err_set(err, ERR_INVALID, "the field 'path' is not a text");
    return envd_path(path ? json_string_value(path) : "", home, w->base, err);
}

static void watch_begin(struct envd_call *c, bool streams) {
    struct watcher *w = xnew(struct watcher);
    struct err err;
    w->all = envd_watches(c->envd);
    w->service = c->service;
    w->who = c->who;
    w->call = c;
    w->streams = streams;
    memcpy(w->machine, c->machine, sizeof(w->machine));
    if (watcher_read(w, c->json, c->user.home, &err) < 0) {
        free(w);
        envd_fail_with(c, &err);
        return;
    }
    snprintf(w->id, sizeof(w->id), "%s", id_new('w').text);
    w->next = w->all->watchers;
    w->at = &w->all->watchers;
    if (w->next)
        w->next->at = &w->next;
    w->all->watchers = w;
    c->state = w;
    c->on_gone = watcher_gone;
    const struct msg_path ask = {
        .uid = MSG_ID_NONE, .gid = MSG_ID_NONE, .path = {w->base, (uint32_t)strlen(w->base)}};
    w->flying++;
    envd_file(c, MSG_STAT, &ask, NULL, base_seen, w);
}

void envd_files_watch(struct envd_call *c) {
    watch_begin(c, true);
}

void envd_files_watcher_new(struct envd_call *c) {
    watch_begin(c, false);
}

/* The watch that a message names. NULL: the call was answered. */
static struct watcher *watcher_named(struct envd_call *c) {
    const char *id = json_string_value(json_object_get(c->json, "watcherId"));
    for (struct watcher *w = envd_watches(c->envd)->watchers; w && id; w = w->next)
        if (!w->streams && w->started && strcmp(w->id, id) == 0 &&
            strcmp(w->machine, c->machine) == 0)
            return w;
    envd_fail(c, CONNECT_NOT_FOUND, "watcher with id %.100s not found", id ? id : "");
    return NULL;
}

void envd_files_watcher_poll(struct envd_call *c) {
    struct watcher *w = watcher_named(c);
    struct buf text DEFER(buf_done) = BUF(ENVD_ANSWER_MAX);
    struct jot j = JOT(&text);
    if (!w)
        return;
    w->polled_ms = loop_now_ms(w->all->loop);
    if (w->over && !w->change_count) {
        envd_fail_with(c, &w->why);
        return;
    }
    jot_object(&j, NULL);
    jot_array(&j, "events");
    while (w->change_count) {
        change_put(&j, NULL, &w->changes[0]);
        jot_end(&j, '}');
        change_drop(w);
    }
    jot_end(&j, ']');
    jot_end(&j, '}');
    envd_answer(c, &j, &text);
}

/* Ends a watch that polls, once nothing is under way. */
static void polled_end(struct watcher *w) {
    struct err why;
    err_set(&why, ERR_GONE, "the watch was removed");
    watcher_fail(w, &why);
    w->started = false;
    watcher_settle(w);
}

void envd_files_watcher_remove(struct envd_call *c) {
    struct watcher *w = watcher_named(c);
    if (!w)
        return;
    polled_end(w);
    envd_done(c);
}

/* ---- all watches ---- */

struct watches *watches_new(struct loop *loop, struct service *service) {
    struct watches *all = xnew(struct watches);
    *all = (struct watches){.loop = loop, .service = service};
    return all;
}

bool watches_tick(struct watches *all) {
    uint64_t now = loop_now_ms(all->loop);
    bool polls = false;
    for (struct watcher *w = all->watchers, *next; w; w = next) {
        next = w->next;
        if (w->streams || !w->started)
            continue;
        if (now - w->polled_ms > POLLED_IDLE_MS)
            polled_end(w);
        else
            polls = true;
    }
    return polls;
}

void watches_free(struct watches *all) {
    for (struct watcher *w = all->watchers, *next; w; w = next) {
        next = w->next;
        if (!w->streams && w->started)
            polled_end(w);
    }
    if (!all->watchers)
        free(all);
}
