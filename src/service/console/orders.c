#include "service/console/orders.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "service/state.h"

enum order_state { ORDER_FREE, ORDER_WAITING, ORDER_TAKEN, ORDER_DONE };

static const char *const state_names[] = {"", "waiting", "taken", "done"};

struct order {
    enum order_state state;
    uint64_t id, number, expires_ms; /* number: orders are carried out in this order */
    char owner[STORE_NAME_SIZE];
    char *body, *output;
    int64_t status;
};

struct worker {
    char owner[STORE_NAME_SIZE];
    uint64_t seen_ms;
};

struct orders {
    struct order rows[ORDERS_MAX];
    struct worker workers[ORDERS_MAX];
    uint64_t last; /* number */
};

struct orders *orders_new(void) {
    return xnew(struct orders);
}

static void order_clear(struct order *o) {
    free(o->body);
    free(o->output);
    *o = (struct order){.state = ORDER_FREE};
}

void orders_free(struct orders *o) {
    for (size_t i = 0; o && i < ORDERS_MAX; i++)
        order_clear(&o->rows[i]);
    free(o);
}

static struct worker *worker_find(struct orders *o, const char *owner) {
    for (size_t i = 0; i < ORDERS_MAX; i++)
        if (strcmp(o->workers[i].owner, owner) == 0)
            return &o->workers[i];
    return NULL;
}

bool service_order_worker(const struct service *s, const char *owner) {
    const struct worker *w = worker_find(s->orders, owner);
    return w && monotonic_ms() - w->seen_ms < ORDER_WORKER_S * 1000;
}

/* A new owner takes the place of the one that was seen longest ago. */
static void worker_seen(struct orders *o, const char *owner) {
    struct worker *w = worker_find(o, owner);
    for (size_t i = 0; !w && i < ORDERS_MAX; i++)
        if (!o->workers[i].owner[0])
            w = &o->workers[i];
    if (!w) {
        w = &o->workers[0];
        for (size_t i = 1; i < ORDERS_MAX; i++)
            if (o->workers[i].seen_ms < w->seen_ms)
                w = &o->workers[i];
    }
    snprintf(w->owner, sizeof(w->owner), "%s", owner);
    w->seen_ms = monotonic_ms();
}

/* Removes orders that are over, and counts those of the owner. */
static struct order *order_slot(struct orders *o, const char *owner, size_t *ret_count) {
    struct order *slot = NULL;
    *ret_count = 0;
    for (size_t i = 0; i < ORDERS_MAX; i++) {
        struct order *row = &o->rows[i];
        if (row->state && monotonic_ms() >= row->expires_ms)
            order_clear(row);
        if (!row->state)
            slot = row;
        else
            *ret_count += strcmp(row->owner, owner) == 0;
    }
    return slot;
}

/* The order whose result was kept longest. owner: only one of this owner; or NULL. */
static struct order *order_oldest_done(struct orders *o, const char *owner) {
    struct order *oldest = NULL;
    for (size_t i = 0; i < ORDERS_MAX; i++) {
        struct order *row = &o->rows[i];
        if (row->state == ORDER_DONE && (!owner || strcmp(row->owner, owner) == 0) &&
            (!oldest || row->number < oldest->number))
            oldest = row;
    }
    return oldest;
}

/* An order writes to files of the owner, so no token may give one, whatever its scopes. */
static int order_check(const struct caller *who, const char *body, struct err *err) {
    if (authorise(who, RIGHT_SHIP, err) < 0)
        return -1;
    if (!who->local) {
        err_set(err, ERR_DENIED, "only pages of the console order shipments, tokens do not");
        return err_remedy(err, "run carrel ship on the host of the daemon");
    }
    if (strlen(body) > ORDER_BODY_MAX) {
        err_set(err, ERR_LIMIT, "the order is larger than %d bytes", ORDER_BODY_MAX);
        return err_remedy(err, "pick fewer files, or all of them");
    }
    return 0;
}

/* An order of another owner does not exist. */
static struct order *order_find(struct service *s, const struct caller *who, uint64_t id,
                                struct err *err) {
    for (size_t i = 0; i < ORDERS_MAX; i++) {
        struct order *row = &s->orders->rows[i];
        if (row->state && row->id == id && strcmp(row->owner, who->owner) == 0)
            return row;
    }
    err_set(err, ERR_NOT_FOUND, "this order of the console does not exist, or was too long ago");
    return NULL;
}

int service_order_add(struct service *s, const struct caller *who, uint64_t id, const char *body,
                      struct err *err) {
    struct orders *o = s->orders;
    struct err unknown;
    size_t count;
    if (order_check(who, body, err) < 0)
        return -1;
    if (order_find(s, who, id, &unknown))
        return 0;
    if (!service_order_worker(s, who->owner)) {
        err_set(err, ERR_BUSY, "the command carrel console does not run, which ships as you");
        return err_remedy(err, "run carrel console in a terminal and leave it running");
    }
    struct order *slot = order_slot(o, who->owner, &count);
    if (count >= ORDERS_OF_OWNER)
        slot = order_oldest_done(o, who->owner);
    else if (!slot)
        slot = order_oldest_done(o, NULL);
    if (!slot)
        return err_set(err, ERR_LIMIT, "too many orders of the console wait already");
    order_clear(slot);
    *slot = (struct order){.state = ORDER_WAITING,
                           .id = id,
                           .number = ++o->last,
                           .expires_ms = monotonic_ms() + ORDER_LIFE_S * 1000,
                           .body = xstrdup(body),
                           .status = -1};
    snprintf(slot->owner, sizeof(slot->owner), "%s", who->owner);
    return 0;
}

static void order_view(const struct order *row, struct order_view *ret) {
    *ret = (struct order_view){.id = row->id,
                               .body = row->body,
                               .state = state_names[row->state],
                               .status = row->status,
                               .output = row->output};
}

void service_order_seen(struct service *s, const struct caller *who) {
    worker_seen(s->orders, who->owner);
}

bool service_order_take(struct service *s, const struct caller *who, struct order_view *ret) {
    struct orders *o = s->orders;
    struct order *first = NULL;
    worker_seen(o, who->owner);
    for (size_t i = 0; i < ORDERS_MAX; i++) {
        struct order *row = &o->rows[i];
        if (row->state == ORDER_WAITING && strcmp(row->owner, who->owner) == 0 &&
            (!first || row->number < first->number))
            first = row;
    }
    if (!first)
        return false;
    first->state = ORDER_TAKEN;
    order_view(first, ret);
    return true;
}

/* Makes room for a result of this owner. */
static void order_shed(struct orders *o, const char *owner, size_t bytes) {
    size_t kept = 0;
    for (size_t i = 0; i < ORDERS_MAX; i++)
        if (o->rows[i].output && strcmp(o->rows[i].owner, owner) == 0)
            kept += strlen(o->rows[i].output);
    while (kept + bytes > ORDERS_OUTPUT_MAX) {
        struct order *oldest = order_oldest_done(o, owner);
        if (!oldest)
            return;
        kept -= strlen(oldest->output);
        order_clear(oldest);
    }
}

int service_order_done(struct service *s, const struct caller *who, uint64_t id, int64_t status,
                       const char *output, struct err *err) {
    struct orders *o = s->orders;
    struct order *row = order_find(s, who, id, err);
    if (!row)
        return -1;
    if (row->state != ORDER_TAKEN)
        return err_set(err, ERR_BUSY, "this order of the console was not taken");
    if (strlen(output) > ORDER_OUTPUT_MAX)
        return err_set(err, ERR_LIMIT, "the result of an order has more than %d MiB",
                       ORDER_OUTPUT_MAX >> 20);
    order_shed(o, who->owner, strlen(output));
    row->state = ORDER_DONE;
    row->status = status;
    row->output = xstrdup(output);
    return 0;
}

int service_order_show(struct service *s, const struct caller *who, uint64_t id,
                       struct order_view *ret, struct err *err) {
    const struct order *row = order_find(s, who, id, err);
    if (!row)
        return -1;
    order_view(row, ret);
    return 0;
}
