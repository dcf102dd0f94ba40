/*
 * Exposed ports: ports inside machines that are reachable from outside, each with its own token or
 * public.
 *
 * A token is shown once, when the port is exposed.
 */
#pragma once

#include "service/net/net.h"
#include "service/service.h"

struct expose_request {
    struct given port;
    bool is_public;
};

/* Answers {"machine","port","url","token"}; a port that is already exposed gets a new token. A
 * public port has none. */
void service_expose(struct service *s, const struct caller *who, const char *machine,
                    const struct expose_request *r, service_net_fn *done, void *arg);
/* Answers {"machine","exposures":[{"port","url"}]}. */
void service_expose_list(struct service *s, const struct caller *who, const char *machine,
                         service_net_fn *done, void *arg);
void service_expose_remove(struct service *s, const struct caller *who, const char *machine,
                           uint16_t port, service_net_fn *done, void *arg);
