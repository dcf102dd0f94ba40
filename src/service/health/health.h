/*
 * Health of a machine: does its guest answer, has its disk space, did it run out of memory, do its
 * services and its upkeep work, is there a backup.
 *
 * A machine that turns bad, or good again, gets an event. Nothing is measured between requests.
 */
#pragma once

#include "service/service.h"

enum health_state {
    HEALTH_UNKNOWN, /* cannot be told now, for example because the machine is stopped */
    HEALTH_GOOD,
    HEALTH_BAD,
};
const char *health_state_name(enum health_state state);

struct health_check {
    const char *name;
    enum health_state state;
    char text[160]; /* for people */
};

enum { HEALTH_CHECKS = 7 };

struct health_view {
    const char *machine;
    enum health_state state; /* the worst of the checks */
    struct health_check checks[HEALTH_CHECKS];
};

typedef void service_health_fn(void *arg, const struct health_view *view, const struct err *err);
/* Answers within some seconds, whatever the guest does. */
void service_health(struct service *s, const struct caller *who, const char *machine,
                    service_health_fn *done, void *arg);
