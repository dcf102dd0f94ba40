/*
 * Models in the daemon: one HTTP client and one ledger for all callers. Machines reach models at
 * http://models.carrel within their policy and budget. The operator calls them in this process
 * through model/client.h.
 *
 * Accounts (store/accounts.h): "owner:NAME" has the limits of carrel.conf; its children are
 * "machine:ID", and theirs are "run:ID". The account of a fork is a child of the nearest ancestor
 * with limits, so source and fork share the rest.
 */
#pragma once

#include "model/gateway.h"
#include "service/service.h"

#define MODELS_HOST "models.carrel"

/* What a call in this process needs; all of it stays the service's. */
struct model_access {
    struct loop *loop;
    struct fetcher *fetcher;
    struct store *store;
    const struct conf *conf;
    model_env_fn *env; /* keys of providers */
    void *env_arg;
};
struct model_access service_model_access(struct service *s);

/*
 * The account of a run, made if it is not there: below that of the machine (its id), or of the
 * owner where machine is NULL. limit: its own, zero is none.
 */
int service_run_account(struct service *s, const char *owner, const char *machine, const char *run,
                        const struct cost *limit, char ret[ACCOUNT_ID_SIZE], struct err *err);

/* Written down and counted: for calls that did not come through the gateway. */
void service_model_told(struct service *s, const struct gateway_call *call);

/* Since the daemon started. */
struct model_stats {
    uint64_t calls, refused, in, out, micro;
};
void service_model_stats(const struct service *s, struct model_stats *ret);
