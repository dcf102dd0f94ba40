/*
 * The inside of steps: what the files of steps/ share with those that make, end and adopt machines.
 * Only for src/service.
 */
#pragma once

#include "service/state.h"
#include "store/steps.h"

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

/* Something was changed: by the machine's policy a step is taken once the stack has unwound. */
void steps_after(struct live *l, const struct step_cause *cause);

/* The machine was found again: what was begun is finished. -1: what that is cannot be read. */
int steps_adopt(struct live *l, struct err *err);
/* The daemon leaves: lets go of what is under way; the next one finishes it. */
void steps_release(struct live *l);
/* Its end is decided: nobody waits any longer. */
void steps_end(struct live *l);

/* The same for a rewind (rewind.c). */
int rewind_adopt(struct live *l, struct step_row *row, struct err *err);

/* What the machine's root is made of; loaded when first asked for. */
int steps_load(struct live *l, struct err *err);
/* It is that upper now, over that stack: in a transaction, and once that is committed. */
int steps_root_put(struct live *l, uint32_t layer, const char *stack, struct err *err);
void steps_root_known(struct live *l, uint32_t layer, const char *stack);

/*
 * prune.c: "3 7-9", the layers of a disk that a root, a step or this stack (or NULL) names. False:
 * that is not known, and nothing may be removed.
 */
enum { RANGES_SIZE = 16000 };
bool layers_named(struct store *store, const char *disk, const char *stack, char text[RANGES_SIZE],
                  struct err *err);

/*
 * The root of a machine at rest becomes another one of the same files, made of the layers as they
 * are merged by now: what only the old one held can go. If nothing was written since the newest
 * step, that step gets the new layers, which hold the same; else what was written is kept as a
 * step of its own.
 */
void steps_refresh(struct live *l);

/* The newest step that switched the root: it names what is mounted. Its number is 0: none did. */
int steps_newest_switch(struct live *l, struct step_row *ret, struct err *err);

/* prune.c, from the tick: the oldest go when there are too many, or the disk is full of them. */
void steps_prune(struct live *l);
/* A step or rewind found no room: the oldest steps go. False: it is to be refused. */
bool steps_make_room(struct live *l, const struct err *err, unsigned *tries);

/* tidy.c: merges what has become too many layers, in the background. */
void steps_compact(struct live *l);
/* Into as few as can be: its disk is full, and no step is left to drop. */
void steps_compact_full(struct live *l);
void steps_compact_release(struct live *l);

/*
 * still.c: the upper becomes that layer too, while everything stands still. how: btrfs, reflink,
 * copy. `at_once`: if that takes what was changed it is `unsupported`, and nothing stood still.
 */
typedef void still_fn(void *arg, const char *how, const struct err *err);
void still_copy(struct live *l, uint32_t number, bool at_once, still_fn *done, void *arg);
void still_release(struct live *l); /* the daemon leaves: the next one lets the machine go on */

/* The stack that shows what the machine is now, once its upper is frozen. */
int steps_next_stack(struct live *l, char text[LAYERS_TEXT_SIZE], struct err *err);

typedef void step_taken_fn(void *arg, const struct step_row *row, const struct err *err);
/* A step whatever the policy; row lives only during the call. */
void steps_take(struct live *l, const struct step_cause *cause, step_taken_fn *done, void *arg);
