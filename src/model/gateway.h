/*
 * Models for those inside a machine: an endpoint for each of the three formats that forwards to the
 * providers of the owner, with the owner's keys, within the machine's budget.
 *
 * A request goes out in the format it came in, with three things changed: the model's name as the
 * provider knows it, a limit of tokens if there was none, and for Chat streams the wish for usage.
 * Keys that a client sends are thrown away. Answers pass through as they come. There are no retries
 * here: the client has its own.
 *
 * "PROVIDER/MODEL" names both; a plain "MODEL" goes to the first provider of carrel.conf that
 * speaks the format, else to the known one.
 */
#pragma once

#include "io/fetch.h"
#include "io/http_server.h"
#include "model/price.h"
#include "model/provider.h"
#include "store/db.h"

struct gateway;

/* What became of a request. Texts live during the call. */
struct gateway_call {
    const char *account, *provider, *model; /* the last two empty: not known */
    int status;                             /* what the client was told; 0: it has gone */
    struct model_usage usage;               /* zero unless it is known */
    struct cost cost;                       /* that was charged */
    bool is_exact;                          /* not: its usage is not known, the worst is charged */
    const char *why;                        /* it was refused here, or broke off; else NULL */
};

/* All of it stays the caller's, and outlives the gateway. */
struct gateway_config {
    struct loop *loop;
    struct fetcher *fetcher;
    struct store *store;
    const struct conf *conf;
    model_env_fn *env;
    void *env_arg;
    /* May be NULL. Once for every request that named a model endpoint. */
    void (*told)(void *arg, const struct gateway_call *call);
    void *told_arg;
    /*
     * May be NULL. Before a request is sent that makes the provider do more than answer
     * (model/reach.h; what: by which word of it). -1: it is refused, for this reason.
     */
    int (*reaches)(void *arg, const char *account, const char *what, struct err *err);
    void *reaches_arg;
};

enum { GATEWAY_MAX_TOKENS = 8192 }; /* where neither the request nor carrel.conf says */

struct gateway *gateway_new(const struct gateway_config *config);
/* Cuts off what is under way; its holds are charged. Not from inside a callback. */
void gateway_free(struct gateway *g);

/*
 * Answers the exchange, as an on_request() would: POST to a path that ends in /v1/messages,
 * /chat/completions or /responses, and GET of .../models. What it costs is charged to the account.
 */
void gateway_request(struct gateway *g, struct http_exchange *x, const char *account);
