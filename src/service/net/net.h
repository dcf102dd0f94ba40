/* Network rules of a machine; they can change while it runs. */
#pragma once

#include "gate/gate.h"
#include "service/service.h"

/* The policy as it is now: {"machine","listening","default","rules":[...]}, alive during the call.
 */
typedef void service_net_fn(void *arg, const char *json, const struct err *err);

void service_net_show(struct service *s, const struct caller *who, const char *ref,
                      service_net_fn *done, void *arg);
/* A rule more, or all those of a preset; the answer is the policy as it is then. */
void service_net_add(struct service *s, const struct caller *who, const char *ref,
                     const struct net_request *r, service_net_fn *done, void *arg);
void service_net_remove(struct service *s, const struct caller *who, const char *ref, uint64_t rule,
                        service_net_fn *done, void *arg);
/* From now on a taint closes what was not granted for that beforehand: gate/policy.h. */
int service_net_guard(struct service *s, const struct caller *who, const char *ref,
                      struct err *err);

void service_net_stats(struct service *s, struct gate_stats *ret);
