/*
 * Requests of machines that wait for the approval of their owner.
 *
 * An approval lets one request through, unless the owner also adds a rule (`always` or `ttl`).
 */
#pragma once

#include "service/net/net.h"

/* Answers {"pending":[...]}: all waiting requests of machines that this caller may see. */
void service_pending(struct service *s, const struct caller *who, service_net_fn *done, void *arg);

/* Writes the first undecided request of this machine, as {"approval":{...}}; false: none. */
bool service_pending_of(struct service *s, const char *machine, struct buf *to);

struct approval_request {
    const char *decision; /* approve, deny or, for a question, answer */
    const char *text;     /* answer: what the machine is told */
    bool always;          /* also add a rule that matches only this request */
    struct given ttl;     /* also add such a rule, which expires after this time (ms) */
};
void service_approve(struct service *s, const struct caller *who, const char *id,
                     const struct approval_request *r, service_net_fn *done, void *arg);
