/*
 * Calls to models, in the loop: one call is one request with as many attempts as it needs, each
 * paid for from the ledger before it is sent.
 *
 * An attempt first holds its worst case and has it flushed, then goes out; what it really cost is
 * settled when it has ended. An attempt that the provider refused, or that never reached it, costs
 * nothing; one whose usage nobody knows costs what was held. Either the whole answer is handed out
 * or a failure, once.
 */
#pragma once

#include "io/fetch.h"
#include "model/codec.h"
#include "model/price.h"
#include "model/provider.h"
#include "model/rehearsal.h"
#include "store/db.h"

struct model_call;

/* Zero means the default behind it. */
struct model_call_options {
    const struct model_provider *provider; /* stays the caller's until the call has ended */
    struct rehearsal *rehearsal;           /* of the provider without a codec */
    uint64_t step;                         /* of the run: what a rehearsal goes by */
    bool tells_step;                       /* over HTTP too, as the field "Carrel-Step" */
    struct store *store;                   /* NULL: nobody counts */
    const char *account;                   /* copied */
    const struct conf_model *row;          /* price and window; NULL: not known */
    unsigned attempts_max;                 /* 8 */
    uint64_t back_off_ms;                  /* 500 */
    uint64_t deadline_ms;                  /* from now, for all attempts; 0: none */
    unsigned connect_ms, idle_ms;          /* as io/fetch.h */
};

struct model_call_events {
    model_seen_fn *on_seen; /* may be NULL, as the next one */
    /* An attempt failed and another follows: what was seen of it is void. */
    void (*on_retry)(void *arg, unsigned attempt, uint64_t wait_ms, const struct err *why);
    /*
     * The end, once. answer = NULL: it failed, and err says why. Who wants to keep the answer takes
     * it: *mine = *answer, *answer = (struct model_answer){0}. The call is gone when this returns.
     */
    void (*on_done)(void *arg, struct model_answer *answer, enum model_failure failure,
                    const struct err *err);
};

/* -1: nothing was started, and no callback comes. Nothing of the request is needed afterwards. */
int model_call_start(struct loop *loop, struct fetcher *fetcher,
                     const struct model_request *request, const struct model_call_options *options,
                     const struct model_call_events *events, void *arg, struct model_call **ret,
                     struct err *err);

/* No callback any more. Also from inside the callbacks, but for on_done. */
void model_call_cancel(struct model_call *call);
