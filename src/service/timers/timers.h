/*
 * Timers: commands that a machine runs at set times. A machine at rest is woken for them.
 *
 * A run that was due while no daemon ran is done once, as soon as one runs, and its event says how
 * late it is. The same run is never done twice. A timer acts for who made it: without a valid
 * token, or if its owner may not run commands any more, it does nothing.
 */
#pragma once

#include "service/net/net.h"
#include "service/service.h"

#define TIMER_EVERY_MAX_MS (366ull * 86400000)
#define TIMER_AT_MAX_MS (1ull << 43)

enum {
    TIMER_EVERY_MIN_MS = 60000,
    TIMER_WORDS_MAX = 64, /* of a command */
    TIMER_USER_MAX = 63,
    TIMERS_OF_MACHINE = 32,
};

struct timer_request {
    struct texts argv;
    const char *task; /* of upkeep, instead of argv */
    const char *user;
    struct given every, in; /* milliseconds */
    struct given at_ms;     /* since 1970 */
};

struct service_timers;
struct service_timers *service_timers_new(void);
void service_timers_free(struct service_timers *t);
/* Called by the tick: begins the runs that are due. */
void timers_look(struct service *s, int64_t wall);

struct live;
/*
 * Returns the number of tasks of upkeep (upkeep.h) that are switched on; -1: cannot be read. why:
 * gets what the last run of one of them failed with, or nothing.
 */
int timers_upkeep(struct live *l, char *why, size_t size);

/* Answers {"timers":[...]}. */
void service_timer_list(struct service *s, const struct caller *who, const char *machine,
                        service_net_fn *done, void *arg);
/* The other verbs answer the timer. */
void service_timer_add(struct service *s, const struct caller *who, const char *machine,
                       const struct timer_request *r, service_net_fn *done, void *arg);
void service_timer_remove(struct service *s, const struct caller *who, const char *machine,
                          const char *id, service_net_fn *done, void *arg);
