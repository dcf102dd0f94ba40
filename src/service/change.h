/*
 * One operation on a whole machine (pause, stop, update, ...) from its intent to its result. A
 * machine has at most one in progress. Only for src/service.
 */
#pragma once

#include "service/state.h"

struct change {
    struct live *live;
    struct caller who;
    const char *verb;
    uint64_t intent;
    enum machine_state after;
    enum state_by by;
    service_machine_fn *done;
    void *arg;
    /* Set by change_commit(). */
    int (*write)(void *arg, struct err *err);
    void (*written)(void *arg, const struct err *failed);
    void *of;
};

enum change_kind {
    CHANGE_LIVE,  /* the operation requires a running guest */
    CHANGE_WAKES, /* it also accepts a machine that waits to be resumed */
    CHANGE_STOPS, /* it also accepts a machine that sleeps (asleep.h) */
    CHANGE_ENDS,  /* it requires no guest, and may be requested twice */
};
/*
 * Authorises the caller, finds the machine and writes the intent. NULL: `done` was called with the
 * error.
 */
struct change *change_begin(struct service *s, const struct caller *who, const char *ref,
                            const char *verb, enum change_kind kind, service_machine_fn *done,
                            void *arg);
/*
 * The operation is done: saves it, then calls `written`, which finishes it. While the disk is full,
 * a waiting caller is told that the outcome is not certain.
 */
void change_commit(struct change *c, int (*write)(void *arg, struct err *err),
                   void (*written)(void *arg, const struct err *failed), void *of);
/* Writes the result and answers the caller. */
void change_finish(struct change *c, const struct err *err);
