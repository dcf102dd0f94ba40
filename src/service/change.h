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
    service_machine_fn *done;
    void *arg;
    /* change_commit() */
    int (*write)(void *arg, struct err *err);
    void (*written)(void *arg, const struct err *failed);
    void *of;
};

enum change_kind {
    CHANGE_LIVE,  /* needs a guest */
    CHANGE_WAKES, /* or one that waits to be resumed */
    CHANGE_ENDS,  /* needs none, and may be wished for twice */
};
/* Authorises, finds, writes the intent. NULL: `done` has been told why not. */
struct change *change_begin(struct service *s, const struct caller *who, const char *ref,
                            const char *verb, enum change_kind kind, service_machine_fn *done,
                            void *arg);
/*
 * It is done: written down, then `written`, which finishes it. Who waits while the disk is full is
 * told that the outcome is not certain.
 */
void change_commit(struct change *c, int (*write)(void *arg, struct err *err),
                   void (*written)(void *arg, const struct err *failed), void *of);
/* Writes the result and answers. */
void change_finish(struct change *c, const struct err *err);
