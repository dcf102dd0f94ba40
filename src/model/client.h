/*
 * Model calls on the loop: one call is one request with as many attempts as it needs, each paid
 * from the ledger before it is sent.
 *
 * An attempt reserves its worst case, waits until the reservation is on disk, and is then sent; the
 * real cost is settled when it ends. An attempt that the provider refused, or that never reached
 * it, costs nothing. If the usage is unknown, the reserved amount is charged. The caller gets
 * either the whole answer or a failure, once.
 */
#pragma once

#include "io/fetch.h"
#include "model/codec.h"
#include "model/paid.h"
#include "model/price.h"
#include "model/provider.h"
#include "model/rehearsal.h"
#include "store/db.h"

struct model_call;

/* A number of 0 means the default, which is given in the comment. */
struct model_call_options {
    const struct model_provider *provider; /* owned by the caller, must outlive the call */
    struct rehearsal *rehearsal;           /* the script, if the provider is `rehearsal` */
    uint64_t turn;                /* turn of the run, by which a rehearsal chooses its answer */
    bool tells_turn;              /* also send the turn over HTTP, as the field "Carrel-Turn" */
    struct ledger *ledger;        /* pays for the call; NULL: no accounting */
    const char *account;          /* id of the account that pays; copied */
    const struct conf_model *row; /* price and context window; NULL: not known */
    unsigned attempts_max;        /* default: 8 */
    uint64_t back_off_ms;         /* delay before the first retry; default: 500 */
    uint64_t deadline_ms;         /* limit for all attempts together; default: none */
    unsigned connect_ms, idle_ms; /* timeouts, with the defaults of io/fetch.h */
};

struct model_call_events {
    model_seen_fn *on_seen; /* a piece of the answer, for display; may be NULL, like on_retry */
    /* An attempt failed and is retried: discard what on_seen reported for it. */
    void (*on_retry)(void *arg, unsigned attempt, uint64_t wait_ms, const struct err *why);
    /*
     * Called once at the end. answer NULL: the call failed, see err. To keep the answer, move it:
     * *mine = *answer, *answer = (struct model_answer){0}. The call is freed when this returns.
     * An answer without has_usage has the estimated usage.
     */
    void (*on_done)(void *arg, struct model_answer *answer, enum model_failure failure,
                    const struct err *err);
};

/* Starts a call. -1: not started, no callback follows. The request may be freed afterwards. */
int model_call_start(struct loop *loop, struct fetcher *fetcher,
                     const struct model_request *request, const struct model_call_options *options,
                     const struct model_call_events *events, void *arg, struct model_call **ret,
                     struct err *err);

/* Cancels the call; no callback follows. May be called inside callbacks, except on_done. */
void model_call_cancel(struct model_call *call);
