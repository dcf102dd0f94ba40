/*
 * Items that wait for the owner while an agent has the terminal: hears of them by the events of the
 * machine, and asks about them when the owner presses the key.
 *
 * While the agent runs nothing here waits long: a daemon that restarts is asked again later.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "cli/agent/agent.h"
#include "cli/approvals.h"
#include "cli/text/aside.h"

enum { WAITING_AGAIN_MS = 2000, WAITING_ANSWER_MS = 5000 };

struct waiting {
    struct aside aside;
    const struct agent *agent;
    struct http_client *events; /* NULL: not connected */
    struct client calls;        /* its connection is for requests */
    uint64_t again_ms;          /* when to connect again */
};

static void waiting_drop(struct http_client **slot) {
    http_client_freep(slot);
    *slot = NULL;
}

static struct http_client *waiting_connection(const struct waiting *w) {
    struct err none; /* tried again later */
    struct http_client *c = client_again(w->agent->client, &none);
    if (c)
        http_client_set_timeout(c, WAITING_ANSWER_MS);
    return c;
}

/* ---- events ---- */

static void waiting_connect(struct waiting *w) {
    char target[CLIENT_TARGET_SIZE] = "/v1/events";
    const struct client_request r = {
        .method = "GET", .target = target, .accept = "text/event-stream"};
    const struct http_head *head;
    struct err none; /* tried again later */
    if (w->events || monotonic_ms() < w->again_ms)
        return;
    w->again_ms = monotonic_ms() + WAITING_AGAIN_MS;
    w->events = waiting_connection(w);
    if (!w->events || client_query(target, "machine", w->agent->machine, &none) < 0 ||
        client_send(&w->calls, w->events, &r, &none) < 0 ||
        client_answer(w->events, &head, &none) < 0)
        waiting_drop(&w->events);
}

/* Every event is a reason to count again, so their text is not needed. */
static void waiting_read_events(struct waiting *w) {
    const char *bytes;
    size_t n;
    int more = 0;
    struct err err = {0};
    if (w->events) {
        http_client_set_timeout(w->events, 0);
        while ((more = http_client_read(w->events, &bytes, &n, &err)) > 0)
            ;
    }
    if (w->events && (more == 0 || err.code != ERR_TIMEOUT))
        waiting_drop(&w->events);
}

static int waiting_fd(void *arg) {
    struct waiting *w = arg;
    waiting_connect(w);
    return w->events ? http_client_fd(w->events) : -1;
}

/* ---- items ---- */

/* Gets the items of this machine. They are few: the machine has limits for them. */
static json_t *waiting_items(struct waiting *w) {
    const struct client_request r = {.method = "GET", .target = "/v1/pending"};
    json_t *all DEFER(json_decrefp) = NULL, *mine = json_array(), *item;
    struct err none; /* the daemon may restart */
    size_t i;
    if (!w->calls.http)
        w->calls.http = waiting_connection(w);
    if (!w->calls.http || client_call(&w->calls, &r, &all, &none) < 0)
        waiting_drop(&w->calls.http);
    json_array_foreach(json_object_get(all, "pending"), i, item) {
        if (strcmp(client_text(item, "machine"), w->agent->machine) == 0 && approvals_is_open(item))
            json_array_append(mine, item);
    }
    return mine;
}

static size_t waiting_count(void *arg) {
    struct waiting *w = arg;
    waiting_read_events(w);
    json_t *items DEFER(json_decrefp) = waiting_items(w);
    return json_array_size(items);
}

static void waiting_ask(void *arg, aside_read_fn *read, void *read_arg) {
    struct waiting *w = arg;
    json_t *items DEFER(json_decrefp) = waiting_items(w), *item;
    size_t i;
    printf("carrel: machine %s, %zu waiting; Ctrl-C returns to agent %s\n\n", w->agent->name,
           json_array_size(items), w->agent->row->name);
    json_array_foreach(items, i, item) {
        if (!approvals_ask(&w->calls, item, read, read_arg))
            return;
        putchar('\n');
    }
    if (json_array_size(items))
        return;
    fputs("no request and no question waits for you; press Enter: ", stdout);
    free(read(read_arg));
}

/* ---- open and close ---- */

struct aside *agent_waiting_open(const struct agent *a) {
    struct waiting *w = xnew(struct waiting);
    w->agent = a;
    w->calls = *a->client;
    w->calls.http = NULL;
    w->aside =
        (struct aside){.fd = waiting_fd, .count = waiting_count, .ask = waiting_ask, .arg = w};
    return &w->aside;
}

void agent_waiting_close(struct aside **slot) {
    struct waiting *w = *slot ? (*slot)->arg : NULL;
    if (!w)
        return;
    http_client_freep(&w->events);
    http_client_freep(&w->calls.http);
    free(w);
}
