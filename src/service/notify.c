#include "service/notify.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/log.h"
#include "io/child.h"
#include "io/fetch.h"
#include "service/events.h"

enum {
    NOTIFY_PAGE = 100,
    NOTIFY_BEHIND_MAX = 10000, /* events that a slow receiver may be behind the newest one */
    NOTIFY_LIMIT_MS = 30000,   /* of one call of the command or the webhook */
    NOTIFY_TRIES = 3,
    NOTIFY_AGAIN_MS = 2000,
    NOTIFY_SAID_MAX = 2000,
    NOTIFY_ANSWER_MAX = 64 << 10,
    NOTIFY_TYPES_MAX = 32,
};

/* A receiver of events. It walks through the stored events at its own pace. */
struct lane {
    struct notify *of;
    const char *what; /* for the log */
    void (*send)(struct lane *l);
    int64_t after; /* id of the last event that was looked at */
    char *text;    /* JSON of the event that is being sent; NULL: none */
    int tries;
    struct loop_timer *again;
    struct child *child;
    struct fetch *fetch;
    int status; /* of the webhook's answer */
};

struct notify {
    struct service *service;
    struct loop *loop;
    const struct conf *conf;
    struct fetcher *fetcher;
    struct event_watch watch;
    char types_text[CONF_TEXT_SIZE];
    const char *types[NOTIFY_TYPES_MAX];
    size_t type_count;
    struct lane command, webhook;
};

/* ---- one event after the other ---- */

static bool is_wanted(const struct notify *n, const char *type) {
    for (size_t i = 0; i < n->type_count; i++)
        if (strcmp(n->types[i], type) == 0)
            return true;
    return false;
}

/* Skips the oldest events if the receiver is too slow, so that it gets news in time. */
static void lane_catch_up(struct lane *l) {
    int64_t newest = service_events_last(l->of->service);
    if (newest - l->after <= NOTIFY_BEHIND_MAX)
        return;
    log_line(LOG_WARN, "notify", "skip events, because the %s is too slow: from=%lld to=%lld",
             l->what, (long long)l->after + 1, (long long)newest - NOTIFY_PAGE);
    l->after = newest - NOTIFY_PAGE;
}

/* Finds the next wanted event of a page. 1: found; 0: not in this page; -1: there are no more. */
static int lane_find(struct lane *l) {
    const struct caller daemon = {.scopes = SCOPE_READ | SCOPE_ADMIN};
    const struct events_request r = {.after = l->after, .limit = NOTIFY_PAGE};
    struct event_list list DEFER(event_list_done) = {0};
    struct err err;
    if (service_events(l->of->service, &daemon, &r, &list, &err) < 0) {
        log_line(LOG_ERROR, "notify", "read events: %s", err.text);
        return -1;
    }
    for (size_t i = 0; i < list.count; i++) {
        l->after = list.rows[i].id;
        if (!is_wanted(l->of, list.rows[i].type))
            continue;
        struct buf text = BUF(EVENT_JSON_MAX);
        if (!event_json(&list.rows[i], &text)) {
            buf_done(&text);
            continue;
        }
        l->text = buf_take(&text);
        return 1;
    }
    return list.count == NOTIFY_PAGE ? 0 : -1;
}

static void lane_go_on(struct lane *l) {
    if (l->text || !l->send)
        return;
    lane_catch_up(l);
    int found;
    while ((found = lane_find(l)) == 0)
        ;
    if (found < 0)
        return;
    l->tries = 0;
    l->send(l);
}

static void lane_over(struct lane *l) {
    free(l->text);
    l->text = NULL;
    loop_timer_start(l->again, 0, 0); /* not from within a callback of the child or the fetch */
}

/* Tries again a few times, because a receiver may just be restarting. */
static void lane_failed(struct lane *l, const char *why) {
    bool last = ++l->tries >= NOTIFY_TRIES;
    log_line(LOG_WARN, "notify", "send an event by the %s: %s%s", l->what, why,
             last ? "; given up" : "");
    if (last)
        lane_over(l);
    else
        loop_timer_start(l->again, (uint64_t)NOTIFY_AGAIN_MS << l->tries, 0);
}

static void lane_again(void *arg) {
    struct lane *l = arg;
    if (l->text)
        l->send(l);
    else
        lane_go_on(l);
}

/* ---- the command ---- */

static void command_ended(void *arg, const struct child_end *end) {
    struct lane *l = arg;
    char why[NOTIFY_SAID_MAX + 100];
    l->child = NULL;
    if (end->status == 0) {
        lane_over(l);
        return;
    }
    snprintf(why, sizeof(why), "%s: exit status %d %s", l->of->conf->notify_command, end->status,
             end->late ? "(it took too long)" : end->said);
    lane_failed(l, why);
}

static void command_send(struct lane *l) {
    const char *path = l->of->conf->notify_command;
    const char *const argv[] = {path, NULL};
    const struct child_order order = {.path = path,
                                      .argv = argv,
                                      .input = l->text,
                                      .input_bytes = strlen(l->text),
                                      .out_max = NOTIFY_SAID_MAX,
                                      .said_max = NOTIFY_SAID_MAX,
                                      .limit_ms = NOTIFY_LIMIT_MS};
    struct err err;
    l->child = child_start(l->of->loop, &order, command_ended, l, &err);
    if (!l->child)
        lane_failed(l, err.text);
}

/* ---- the webhook ---- */

static void webhook_head(void *arg, const struct fetch *f, int status) {
    (void)f;
    ((struct lane *)arg)->status = status;
}

static void webhook_ended(void *arg, enum fetch_end end, const char *why) {
    struct lane *l = arg;
    char text[300];
    l->fetch = NULL;
    if (end == FETCH_DONE && l->status >= 200 && l->status < 300) {
        lane_over(l);
        return;
    }
    if (end == FETCH_DONE)
        snprintf(text, sizeof(text), "it answered with status %d", l->status);
    else
        snprintf(text, sizeof(text), "%s", *why ? why : "the connection ended early");
    lane_failed(l, text);
}

static void webhook_send(struct lane *l) {
    static const struct http_pair fields[] = {{"Content-Type", "application/json"}, {NULL, NULL}};
    static const struct fetch_events events = {.on_head = webhook_head, .on_end = webhook_ended};
    const struct fetch_request r = {.method = "POST",
                                    .url = l->of->conf->notify_webhook,
                                    .fields = fields,
                                    .body = l->text,
                                    .n = strlen(l->text),
                                    .total_ms = NOTIFY_LIMIT_MS,
                                    .max_bytes = NOTIFY_ANSWER_MAX};
    struct err err;
    l->status = 0;
    if (fetch_start(l->of->fetcher, &r, &events, l, &l->fetch, &err) < 0)
        lane_failed(l, err.text);
}

/* ---- start and end ---- */

static void lane_init(struct notify *n, struct lane *l, const char *what, const char *target,
                      void (*send)(struct lane *)) {
    *l = (struct lane){.of = n, .what = what, .after = service_events_last(n->service)};
    if (*target)
        l->send = send;
    l->again = loop_timer_new(n->loop, lane_again, l);
}

static void lane_done(struct lane *l) {
    child_drop(l->child);
    if (l->fetch)
        fetch_cancel(l->fetch);
    loop_timer_free(l->again);
    free(l->text);
}

static void notify_changed(void *arg) {
    struct notify *n = arg;
    lane_go_on(&n->command);
    lane_go_on(&n->webhook);
}

static int notify_types(struct notify *n, struct err *err) {
    char *rest = n->types_text;
    snprintf(n->types_text, sizeof(n->types_text), "%s", n->conf->notify_events);
    for (const char *word; (word = strsep(&rest, " \t,"));) {
        if (!*word)
            continue;
        if (n->type_count == NOTIFY_TYPES_MAX)
            return err_set(err, ERR_LIMIT,
                           "key 'events' of section [notify] has more than %d words",
                           NOTIFY_TYPES_MAX);
        n->types[n->type_count++] = word;
    }
    return 0;
}

static int notify_check(const struct conf *conf, struct err *err) {
    const char *url = conf->notify_webhook;
    if (*url && strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) {
        err_set(err, ERR_INVALID, "key 'webhook' of section [notify] is not a URL: '%s'", url);
        return err_remedy(err, "write it as https://HOST/PATH");
    }
    return 0;
}

int notify_new(struct service *s, struct loop *loop, const struct conf *conf, struct notify **ret,
               struct err *err) {
    const struct fetcher_config config = {0};
    *ret = NULL;
    if (!*conf->notify_command && !*conf->notify_webhook)
        return 0;
    if (notify_check(conf, err) < 0)
        return -1;
    struct notify *n = xnew(struct notify);
    *n = (struct notify){.service = s, .loop = loop, .conf = conf};
    n->fetcher = fetcher_new(loop, &config, err);
    if (!n->fetcher || notify_types(n, err) < 0) {
        fetcher_free(n->fetcher);
        free(n);
        return -1;
    }
    lane_init(n, &n->command, "command", conf->notify_command, command_send);
    lane_init(n, &n->webhook, "webhook", conf->notify_webhook, webhook_send);
    n->watch = (struct event_watch){.changed = notify_changed, .arg = n};
    service_events_watch(s, &n->watch);
    *ret = n;
    return 0;
}

void notify_free(struct notify *n) {
    if (!n)
        return;
    service_events_unwatch(&n->watch);
    lane_done(&n->command);
    lane_done(&n->webhook);
    fetcher_free(n->fetcher);
    free(n);
}
