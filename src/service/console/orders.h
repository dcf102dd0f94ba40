/*
 * Orders of the console: shipments that the owner asks for in the browser.
 *
 * The daemon never writes to the owner's files. The command `carrel console` runs as the owner,
 * fetches the orders of that owner, runs `carrel ship` for each, and sends back what it printed.
 */
#pragma once

#include "service/service.h"

enum {
    ORDERS_MAX = 64,
    ORDERS_OF_OWNER = 8,
    ORDER_BODY_MAX = 64 << 10,
    ORDER_OUTPUT_MAX = 4 << 20,  /* of one result */
    ORDERS_OUTPUT_MAX = 8 << 20, /* of all results that an owner has */
    ORDER_LIFE_S = 600,
    ORDER_WORKER_S = 5, /* a worker that asked within this time is there */
};

struct order_view {
    uint64_t id;
    const char *body;  /* JSON, as the page sent it */
    const char *state; /* waiting, taken or done */
    int64_t status;    /* exit status of carrel ship; -1: not done */
    const char *output;
};

/*
 * Adds an order of a page. The page chooses its id, so that it can send the order again when it
 * does not know if it arrived: an id that the owner has already is not added again. `denied` to
 * tokens; `busy` if the owner has no worker. An owner has at most ORDERS_OF_OWNER, results
 * included: one more ends the oldest result.
 */
int service_order_add(struct service *s, const struct caller *who, uint64_t id, const char *body,
                      struct err *err);
/* Called by the worker, again and again: false if there is no order for it. */
bool service_order_take(struct service *s, const struct caller *who, struct order_view *ret);
/* The worker is there, and still carries out the order that it took. */
void service_order_seen(struct service *s, const struct caller *who);
/* Ends the oldest results of the owner, if all together would be larger than ORDERS_OUTPUT_MAX. */
int service_order_done(struct service *s, const struct caller *who, uint64_t id, int64_t status,
                       const char *output, struct err *err);
/* The texts are valid until the order changes. */
int service_order_show(struct service *s, const struct caller *who, uint64_t id,
                       struct order_view *ret, struct err *err);
/* Whether `carrel console` of this owner runs. */
bool service_order_worker(const struct service *s, const char *owner);

struct orders;
struct orders *orders_new(void);
void orders_free(struct orders *o);
