/*
 * Network rules of a machine, which can change while the machine runs.
 *
 * A change is answered only after the new rules are stored.
 */
#pragma once

#include "gate/stats.h"
#include "service/service.h"

/* json: the present policy, {"machine","listening","default","rules":[...]}; valid during the call.
 */
typedef void service_net_fn(void *arg, const char *json, const struct err *err);

void service_net_show(struct service *s, const struct caller *who, const char *ref,
                      service_net_fn *done, void *arg);
/* Adds a rule, or all rules of a preset; the answer is the new policy. */
void service_net_add(struct service *s, const struct caller *who, const char *ref,
                     const struct net_request *r, service_net_fn *done, void *arg);
void service_net_remove(struct service *s, const struct caller *who, const char *ref, uint64_t rule,
                        service_net_fn *done, void *arg);
/* Replaces what a client and carrel.conf gave the machine, struct net_request with `from`. Rules of
 * the owner stay and win over them. The caller needs no right to add rules of its own. */
void service_net_set_given(struct service *s, const struct caller *who, const char *ref,
                           const struct rows *rules, service_net_fn *done, void *arg);
/* Guards the machine: once it is tainted (has read untrusted data), it can reach only what is
 * allowed for tainted machines (gate/policy.h). */
void service_net_guard_told(struct service *s, const struct caller *who, const char *ref,
                            service_net_fn *done, void *arg);
int service_net_guard(struct service *s, const struct caller *who, const char *ref,
                      struct err *err);

/* ERR_DENIED if no rule lets the machine reach any host; the remedy is the rule of this preset. */
int service_net_check(struct service *s, const struct caller *who, const char *ref,
                      const char *preset, struct err *err);

void service_net_stats(struct service *s, struct gate_stats *ret);
