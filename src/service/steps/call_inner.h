/* A step that is requested or in progress, and the functions of steps/ that take it. */
#pragma once

#include "service/steps/inner.h"

/*
 * How a step is taken: by a new root, by a copy of the upper (the writable layer), or without a
 * restore point.
 */
enum step_way { STEP_SWITCHES, STEP_COPIES, STEP_ONLY_NOTED };

/* A step that is requested or in progress. */
struct step_call {
    struct step_call *next;
    struct live *live;
    struct step_row row;
    enum step_way way;
    step_taken_fn *done;
    void *arg;
    struct loop_timer *again;
    bool uncertain; /* it is unknown whether the guest entered the new root */
    unsigned tries;
    unsigned rooms; /* how often old steps were deleted to make space for this one */
    bool memory;    /* the memory of the vm is saved too */
    bool pauses;    /* the vm does not go on */
    bool plain;     /* a refresh without changes: the new stack leaves out the upper */
    unsigned dying; /* how many more times to wait for killed processes */
    bool adding;    /* the row is not written yet: the disk is full */
    bool answered;  /* the guest has answered whether other processes run */
    bool changed;   /* the root was switched */
    bool unwritten; /* the row could not be written; `why` is the reason */
    struct err why;
    struct err shared; /* why a copied step did not switch the root */
};

/* ---- steps/write.c: writes to the store; memory changes after the commit ---- */

int step_put_event(const struct step_call *c, struct err *err);
/*
 * Records that the step is taken (changed: the root was switched to its stack), then calls
 * step_over().
 */
void step_finish(struct step_call *c, bool changed);
/* Deletes the row, then calls step_over() with the reason. */
void step_refuse(struct step_call *c, const struct err *err);
/* Ends a refresh, which leaves no row, then calls step_over(). */
void step_refreshed(struct step_call *c);
/* Writes the row again, because the step is taken in another way than the row says. */
void step_replan(struct step_call *c, void (*done)(void *arg, const struct err *failed));

/* ---- steps/take.c ---- */

/* Frees the step, then starts the next one or lets waiting requests continue. */
void step_over(struct step_call *c, const struct err *err);
struct step_call *step_call_new(struct live *l, const struct step_cause *cause);
void step_call_free(struct step_call *c);
/* Marks the row as one without a restore point, with the reason. */
void step_no_point(struct step_call *c, const char *why);
/* Adds to an error that the machine's disk is full, and what to do. */
void step_say_full(const struct live *l, struct err *err);
/* A loop_fn: asks the guest to switch the root to the stack of this step_call. */
void step_ask_root(void *arg);
struct step_call *steps_next_wanted(struct live_steps *p);
void steps_begin_next(void *arg);

/* ---- steps/copy.c ---- */

void step_take_copy(struct step_call *c);
int step_plan_copy(struct step_call *c, struct err *err);
bool step_may_copy(const struct step_call *c);
bool step_copy_instead(struct step_call *c, const struct err *failed);
