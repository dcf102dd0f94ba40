/* A step that is wanted, or under way: what steps/take.c and steps/write.c share. */
#pragma once

#include "service/steps/inner.h"

/* A switch of root, a copy of the upper, or no restore point at all. */
enum step_way { STEP_SWITCHES, STEP_COPIES, STEP_ONLY_NOTED };

/* A step that is wanted, or under way. */
struct step_call {
    struct step_call *next;
    struct live *live;
    struct step_row row;
    enum step_way way;
    step_taken_fn *done;
    void *arg;
    struct loop_timer *again;
    bool uncertain; /* the root may be sealed, and the guest still in it */
    unsigned tries;
    unsigned rooms; /* times that history was shortened for it */
    bool plain;     /* a refresh: nothing was written, so the upper is left out */
    unsigned dying; /* times that what was killed may still be looked for */
    bool adding;    /* its row is not written yet: the disk is full */
    bool answered;  /* meanwhile the guest said whether it is alone */
    bool changed;   /* the root was switched */
    bool unwritten; /* its row could not be: */
    struct err why;
    struct err shared; /* of one that is copied: why the root was not switched */
};

/* steps/take.c: the next one, or whoever waits. Frees it. */
void step_over(struct step_call *c, const struct err *err);

/* ---- steps/write.c: what is written down; memory changes once it is committed ---- */

int step_put_event(const struct step_call *c, struct err *err);
/* It is taken; the root was switched to its stack, or not. Then step_over(). */
void step_finish(struct step_call *c, bool changed);
/* Its row goes, then step_over() with the reason. */
void step_refuse(struct step_call *c, const struct err *err);
/* A refresh leaves no row. Then step_over(). */
void step_refreshed(struct step_call *c);
/* It is done in another way than its row says: the row is written anew before anything is. */
void step_replan(struct step_call *c, void (*done)(void *arg, const struct err *failed));
