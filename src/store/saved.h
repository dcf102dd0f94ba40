/*
 * The durable part of a machine: one step (snapshot), whose layers were copied to a disk of the
 * store (base/layers.h, "d-..."), and the boot id of the host that runs its box.
 */
#pragma once

#include "base/map.h"
#include "store/steps.h"

struct saved_row {
    char machine[ID_SIZE];
    char disk[ID_SIZE];
    char step[ID_SIZE]; /* id of the durable step; empty: none yet */
    char *source;       /* layers of the step */
    char *stack;        /* copies of these layers, in the same order */
    uint32_t next;      /* number of the next copy; numbers are never reused */
    /* boot id of the host that runs the machine; empty: it has no box, and the store all its files
     */
    char boot[40];
};

void saved_row_done(struct saved_row *row);
int store_saved_put(struct store *s, const struct saved_row *row, struct err *err);
int store_saved_get(struct store *s, const char *machine, struct saved_row *ret, struct err *err);
/*
 * Takes out of `disks` (the keys are ids) those that a machine which has not ended uses. Reads the
 * store once, however many disks there are. After a failure the rest may be in use.
 */
int store_saved_take_used(struct store *s, struct map *disks, struct err *err);

/*
 * Maps each layer of a stack to its copy. A layer without a copy is `missing` and must be copied;
 * its copy gets a new number from row->next.
 */
struct saved_plan {
    struct layers from, to;
    bool missing[LAYERS_MAX];
};
int saved_plan(struct saved_row *row, const char *stack, struct saved_plan *ret, struct err *err);

/*
 * Returns the number of the copy of a layer; 0: it has none. from, to: row->source and row->stack,
 * parsed. A layer that is on the disk row->disk needs no copy.
 */
uint32_t saved_copy_of(const struct layer *l, const struct saved_row *row,
                       const struct layers *from, const struct layers *to);

/* Gives a step copies of its layers. */
int store_step_move(struct store *s, const char *step, const char *stack, struct err *err);
/* Marks the step as the only durable one of its machine. */
int store_step_durable(struct store *s, const char *machine, const char *step, struct err *err);
/*
 * Call after a restart of the host: the durable step uses row->stack from now on, and other steps
 * can no longer be restored.
 */
int store_steps_lose(struct store *s, const struct saved_row *row, const char *reason,
                     struct err *err);
