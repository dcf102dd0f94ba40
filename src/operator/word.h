/*
 * Names the one call that an owner approves or denies, as item "RUN.TURN.CALL.HASH".
 *
 * A decision names the item that was shown. A late decision, made when the run already waits for
 * another call, does not match and is refused.
 */
#pragma once

#include <stdbool.h>

#include "operator/run.h"

enum { WORD_HASH_SIZE = 65, WORD_ITEM_SIZE = ID_SIZE + 64 };

/* The hash of the arguments, as the model wrote them. */
void word_hash(const struct model_part *call, char ret[WORD_HASH_SIZE]);
/* The item of a call of the newest turn. */
void word_item(const struct run *r, uint64_t index, char ret[WORD_ITEM_SIZE]);
/* Copies the id of the run that an item names. False: the item does not name a run. */
bool word_run(const char *item, char ret[ID_SIZE]);
