/*
 * Models in the daemon: one HTTP client and one set of accounts for all callers. Machines reach
 * models at http://models.carrel within their policy and budget. The operator (`carrel do`) calls
 * models in this process through model/client.h.
 *
 * Accounts (store/accounts.h): "owner:NAME" has the limits of carrel.conf; its children are
 * "machine:ID", and theirs are "run:ID". The account of a fork is a child of the nearest ancestor
 * with limits, so source and fork share what is left of these limits.
 */
#pragma once

#include "model/gateway.h"
#include "service/net/net.h"
#include "service/service.h"

#define MODELS_HOST "models.carrel"

/* The objects that a model call in this process needs. The service owns them. */
struct model_access {
    struct loop *loop;
    struct fetcher *fetcher;
    struct store *store;
    struct ledger *ledger;
    const struct conf *conf;
    model_env_fn *env; /* API keys of providers */
    void *env_arg;
};
struct model_access service_model_access(struct service *s);
/* Whether runs of this caller get the keys of the daemon: only those of the user that runs it. */
bool service_has_model_keys(const struct caller *who);

/*
 * Returns the account of a run, and creates it if needed: below the account of the machine (an id),
 * or of the owner if machine is NULL. limit: limits of this run; 0 in a field: no limit.
 */
int service_run_account(struct service *s, const char *owner, const char *machine, const char *run,
                        const struct cost *limit, char ret[ACCOUNT_ID_SIZE], struct err *err);

/* Records and counts a call that did not come through the gateway. */
void service_model_told(struct service *s, const struct gateway_call *call);

/* Totals since the daemon started. */
struct model_stats {
    uint64_t calls, refused, in, out, micro;
};
void service_model_stats(const struct service *s, struct model_stats *ret);

/* Tells as JSON the providers (built-in and of carrel.conf) and whether each can be called, the
 * aliases and the prices. */
void service_model_list(struct service *s, const struct caller *who, service_net_fn *done,
                        void *arg);
enum { MODEL_USAGE_DAYS_MAX = 400 };
/* Tells as JSON what the calls of the caller's owner cost in these days, today included. by: "day",
 * "model", "machine" or "owner"; by owner it tells all of them to a caller that sees all. */
void service_model_usage(struct service *s, const struct caller *who, const char *by, uint64_t days,
                         service_net_fn *done, void *arg);

/* The owner's text of a login: a token, or the file of the vendor's program. */
struct login_request {
    const char *value;
};
/* Stores a login, or replaces it. Calls `done` when it is on disk. */
void service_login_set(struct service *s, const struct caller *who, const char *name,
                       const struct login_request *r, service_done_fn *done, void *arg);
/* Answers {"logins":[{"name","created_ms","changed_ms","used_ms","expires_ms","problem"}]}. */
void service_login_list(struct service *s, const struct caller *who, service_net_fn *done,
                        void *arg);
/* Deletes a login. Machines cannot use it from now on. */
void service_login_remove(struct service *s, const struct caller *who, const char *name,
                          service_done_fn *done, void *arg);

/* Tells as JSON the agents of carrel.conf, their budget, and the formats whose provider has a key.
 */
void service_agent_list(struct service *s, const struct caller *who, service_net_fn *done,
                        void *arg);
