/*
 * Functions that the files of the Anthropic codec share. Only for src/model/anthropic*.c.
 *
 * Pure: structs and bytes, no connection.
 */
#pragma once

#include "model/inner.h"

/* anthropic.c */
bool anthropic_is_sent(const struct model_part *p);
void anthropic_put_part(struct jot *j, const struct model_part *p, bool marked);
const char *anthropic_stop_name(enum model_stop stop);

/* anthropic_answer.c */
void anthropic_put_answer(const struct model_answer *a, struct jot *j);
bool anthropic_put_stream(const struct model_answer *a, struct buf *to);
void anthropic_put_failure(enum model_failure failure, const char *message, bool in_band,
                           struct jot *j);
