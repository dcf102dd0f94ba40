/*
 * Steps of a live machine, for the rest of src/service: taken after changes, found again after a
 * restart, pruned on every tick. steps/barrier.h makes changes wait for them; steps/durable.h keeps
 * them in the store. Only steps/ knows what is inside struct service_steps and struct live_steps.
 */
#pragma once

#include "service/host.h"
#include "service/service.h"
#include "store/steps.h"

struct live;
struct live_steps;
struct service_steps;

struct service_steps *service_steps_new(void);
void service_steps_free(struct service_steps *p);
/* How often a step was taken in a slower way or without a restore point. */
void steps_fallbacks(const struct service *s, uint64_t ret[FELL_COUNT]);

/* Why a step is taken. */
struct step_cause {
    enum step_kind kind;
    const char *exec; /* id of the command, or NULL */
    const char *what;
    int64_t status;
    const char *name; /* name of the step, or NULL */
    bool killed;      /* processes were killed and may still be exiting */
    bool memory;      /* the memory of a vm is saved too (vm/memory.h) */
    bool pauses;      /* for a pause, which holds the machine: the vm does not go on */
};

void steps_init(struct live *l);
void steps_free(struct live *l);
/*
 * Call it when the machine lost its box: forgets the root and pending saves. Only if no step is in
 * progress.
 */
void steps_reset(struct live *l);

/*
 * The root: the number of its upper (the writable layer), and the stack (list of layers) below it;
 * NULL: only the image. See steps_load().
 */
uint32_t steps_layer(const struct live *l);
const char *steps_stack(const struct live *l);
/* Number of steps, as last counted. */
uint64_t steps_count(const struct live *l);
void steps_set_count(struct live *l, uint64_t count);
/* True while the machine is frozen for a copy of its upper. */
bool steps_copy_runs(const struct live *l);
/* True if no step, merge, copy or save is in progress and no operation changes the root. */
bool steps_are_at_rest(const struct live *l);

/* Call it after a change: if the policy requires a step, takes it later from the loop. */
void steps_after(struct live *l, const struct step_cause *cause);
/* Number of calls of steps_after(): commands that ended, and file changes through the API. */
uint64_t steps_changes(const struct live *l);

/*
 * Call it when a command ended beside other processes. True: tell its caller that the step may have
 * no restore point. False: no step is taken, or a caller was told since the last switch.
 */
bool steps_tell_beside(struct live *l);

/*
 * Call it when the machine was adopted: finishes an unfinished step. -1: the store cannot be read.
 */
int steps_adopt(struct live *l, struct err *err);
/* The daemon stops: releases the steps in progress; the next daemon finishes them. */
void steps_release(struct live *l);
/* The machine is ending: all waiting requests continue. */
void steps_end(struct live *l);

/* Reads the root from the store, once. */
int steps_load(struct live *l, struct err *err);
/*
 * Sets the root to this upper and stack: steps_root_put() in a transaction, steps_root_known()
 * after its commit.
 */
int steps_root_put(struct live *l, uint32_t layer, const char *stack, struct err *err);
void steps_root_known(struct live *l, uint32_t layer, const char *stack);
/* The stack (list of layers) of the present state, with the present upper as its newest layer. */
int steps_next_stack(struct live *l, char text[LAYERS_TEXT_SIZE], struct err *err);

/* Sets the error of a request for a step without a restore point, and says what to do instead. */
int step_point_error(const struct live *l, const struct step_row *row, struct err *err);

/* Called on every tick: deletes the oldest steps if there are too many or the disk is full. */
void steps_prune(struct live *l);
/*
 * hold.c: a list of layers that somebody reads. None of them is deleted between layers_hold() and
 * layers_release(), except if their machine ends. The struct belongs to the reader and must stay
 * where it is meanwhile; layers_release() of a zeroed one does nothing.
 */
struct layers_hold {
    struct layers_hold *next;
    char *stack;   /* NULL: nothing is held */
    bool has_kept; /* a deletion was told to keep these layers */
};
void layers_hold(struct service *s, struct layers_hold *h, const char *stack);
void layers_release(struct service *s, struct layers_hold *h);
/* Deletes layers that nothing refers to, on the next tick. */
void steps_want_sweep(struct live *l);

typedef void step_taken_fn(void *arg, const struct step_row *row, const struct err *err);
/* Takes a step, whatever the policy. The row is valid only during the call of `done`. */
void steps_take(struct live *l, const struct step_cause *cause, step_taken_fn *done, void *arg);
