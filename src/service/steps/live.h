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
/* How often a step was taken in a slower way, or without a restore point. */
void steps_fallbacks(const struct service *s, uint64_t ret[FELL_COUNT]);

/* Why a step is taken. */
struct step_cause {
    enum step_kind kind;
    const char *exec; /* id, or NULL */
    const char *what;
    int64_t status;
    const char *name; /* or NULL */
    bool killed;      /* what ran was killed, and may still be on its way out */
};

void steps_init(struct live *l);
void steps_free(struct live *l);
/* The machine lost its box: forgets the root and what is to be saved. Only if it is at rest. */
void steps_reset(struct live *l);

/* The root: number of its upper, and the stack below; NULL: the image alone. See steps_load(). */
uint32_t steps_layer(const struct live *l);
const char *steps_stack(const struct live *l);
/* How many there are, when they were last counted. */
uint64_t steps_count(const struct live *l);
void steps_set_count(struct live *l, uint64_t count);
/* The machine stands still while its upper is copied. */
bool steps_copy_runs(const struct live *l);
/* No step, merge, copy or save is under way, and no verb changes the root. */
bool steps_are_at_rest(const struct live *l);

/* Something was changed: by the machine's policy a step is taken once the stack has unwound. */
void steps_after(struct live *l, const struct step_cause *cause);

/* The machine was found again: what was begun is finished. -1: what that is cannot be read. */
int steps_adopt(struct live *l, struct err *err);
/* The daemon leaves: lets go of what is under way; the next one finishes it. */
void steps_release(struct live *l);
/* Its end is decided: nobody waits any longer. */
void steps_end(struct live *l);

/* Reads what the machine's root is made of, when first asked for. */
int steps_load(struct live *l, struct err *err);
/* It is that upper now, over that stack: in a transaction, and once that is committed. */
int steps_root_put(struct live *l, uint32_t layer, const char *stack, struct err *err);
void steps_root_known(struct live *l, uint32_t layer, const char *stack);
/* The stack that shows what the machine is now, once its upper is frozen. */
int steps_next_stack(struct live *l, char text[LAYERS_TEXT_SIZE], struct err *err);

/* On every tick: drops the oldest steps when there are too many, or the disk is full of them. */
void steps_prune(struct live *l);

typedef void step_taken_fn(void *arg, const struct step_row *row, const struct err *err);
/* A step whatever the policy; row lives only during the call. */
void steps_take(struct live *l, const struct step_cause *cause, step_taken_fn *done, void *arg);
