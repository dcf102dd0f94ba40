/*
 * /usr when the root of a box is switched. A step that finds nothing written to /usr since the last
 * one moves the overlay of /usr to the new root as it is, instead of making another: the kernel
 * still knows the names in it, so the next command does not have to look them all up again.
 *
 * The upper of this overlay then belongs to the new layer: its directories are moved there, and the
 * layer that was closed gets an empty one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "spawn/disk/overlays.h"

struct box;

/* Notes in the stack which layers change nothing in /usr. */
void usr_survey(const struct box *box, struct stack *stack);

/*
 * True if the overlay of /usr can move to a root of these layers: the stack adds only the present
 * upper of the box to those that it shows, and that upper changes nothing in /usr.
 */
bool usr_may_stay(const struct box *box, const struct stack *stack);

/* Records in the box the layers of its root. */
void usr_remember(struct box *box, const struct stack *stack);

/*
 * Moves the upper of /usr from layer box->layer to stack->upper, which exists. No process may be
 * able to write to it. -EBUSY: something was written before. On failure nothing has changed.
 */
int usr_move_upper(const struct box *box, const struct stack *stack);

/*
 * Moves it back, also if a spawner that was killed had moved only a part. `disk` is writable, and
 * ids that this process acts with are valid there.
 */
void usr_return_upper(int disk, uint32_t from, uint32_t to);
