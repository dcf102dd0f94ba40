/*
 * What an owner's word is about: one call of one turn of one run, and nothing else.
 *
 * Its item is "RUN.TURN.CALL.HASH". Who decides names what was shown, so a word that comes late,
 * when the run waits for another call already, is of no use.
 */
#pragma once

#include <stdbool.h>

#include "operator/run.h"

enum { WORD_HASH_SIZE = 65, WORD_ITEM_SIZE = ID_SIZE + 64 };

/* Of the arguments, as the model wrote them. */
void word_hash(const struct model_part *call, char ret[WORD_HASH_SIZE]);
/* Of a call of the newest turn. */
void word_item(const struct run *r, uint64_t index, char ret[WORD_ITEM_SIZE]);
/* The run that an item is about. False: it is no item of a run. */
bool word_run(const char *item, char ret[ID_SIZE]);
