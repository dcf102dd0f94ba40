/* Requests of machines that wait for the approval of their owner. */
#pragma once

#include "service/net/net.h"

/* {"pending":[...]}: all that wait in machines this caller sees. */
void service_pending(struct service *s, const struct caller *who, service_net_fn *done, void *arg);

/* The first request of this machine that nobody has decided, as {"approval":{...}}; false: none. */
bool service_pending_of(struct service *s, const char *machine, struct buf *to);

struct approval_request {
    const char *decision; /* approve or deny */
    bool always;          /* a rule of this very request is added */
    struct given ttl;     /* the same, for so long (ms) */
};
void service_approve(struct service *s, const struct caller *who, const char *id,
                     const struct approval_request *r, service_net_fn *done, void *arg);
