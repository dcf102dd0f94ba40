/*
 * The model gateway for programs inside a machine: endpoints for all three formats that forward to
 * the owner's providers, with the owner's keys, within the machine's budget.
 *
 * A request is forwarded in its own format with three changes: the provider's name of the model,
 * the token limit of carrel.conf if there was none, and for Chat streams the request for usage.
 * Keys from the client are dropped. Answers pass through unchanged. The gateway retries only a
 * provider that it cannot reach; all else the client does.
 *
 * A request with the placeholder of a login (base/login.h) goes to that vendor, with the token of
 * the machine's owner, if the machine has a grant of the login.
 *
 * "PROVIDER/MODEL" names both; a plain "MODEL" goes to the providers of carrel.conf with that
 * format, else to the built-in provider; an alias goes to its models. The next one is tried if one
 * answers with 429 or 5xx, or cannot be reached.
 */
#pragma once

#include "io/fetch.h"
#include "io/http_server.h"
#include "model/login.h"
#include "model/paid.h"
#include "model/price.h"
#include "model/provider.h"

struct gateway;

/* The outcome of a request. Strings are valid during the call only. */
struct gateway_call {
    const char *account, *provider, *model; /* provider and model are empty if not known */
    int status;               /* HTTP status sent to the client; 0: the client had gone */
    struct model_usage usage; /* zero if unknown */
    struct cost cost;         /* the amount charged */
    bool is_exact;            /* false: the usage is not known, and the cost is an estimate */
    uint64_t lowered_to;      /* the budget allowed only this many tokens of output; 0: all */
    const char *why;          /* reason of a refusal or an early end; else NULL */
};

/* All members belong to the caller and must outlive the gateway. */
struct gateway_config {
    struct loop *loop;
    struct fetcher *fetcher;
    struct ledger *ledger;
    const struct conf *conf;
    model_env_fn *env;
    void *env_arg;
    /* May be NULL. Called once per request to a model endpoint. */
    void (*told)(void *arg, const struct gateway_call *call);
    void *told_arg;
    /*
     * May be NULL. Called before a request that makes the provider do more than answer
     * (model/reach.h); what: the part of the request that does so. -1: refuse the request with
     * *err.
     */
    int (*reaches)(void *arg, const char *account, const char *what, struct err *err);
    void *reaches_arg;
    /* May be NULL, both: there are no logins. */
    struct logins *logins;
    /* Finds the owner of the account's machine. -1: the machine may not use this login. */
    int (*login)(void *arg, const char *account, const char *vendor, char owner[STORE_NAME_SIZE],
                 struct err *err);
    void *login_arg;
};

/* The tokens of an answer for which neither the request nor carrel.conf sets a limit. */
enum { GATEWAY_MAX_TOKENS = 1 << 20 };

struct gateway *gateway_new(const struct gateway_config *config);
/* Ends the requests in progress and charges their reserved cost. Do not call inside a callback. */
void gateway_free(struct gateway *g);

/*
 * Answers the exchange, like on_request(): POST to a path that ends in /messages,
 * /messages/count_tokens, /chat/completions, /embeddings or /responses, or is
 * .../models/MODEL:generateContent of Gemini, and GET .../models and .../models/ID. The cost is
 * charged to the account.
 */
void gateway_request(struct gateway *g, struct http_exchange *x, const char *account);
