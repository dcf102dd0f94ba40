/* The functions that responses.c and responses_answer.c share. */
#pragma once

#include "model/openai.h"

extern const struct openai_usage_names responses_usage_names;

/* responses_answer.c */
void responses_put_answer(const struct model_answer *a, struct jot *j);
bool responses_put_stream(const struct model_answer *a, struct buf *to);
void responses_put_failure(enum model_failure failure, const char *message, bool in_band,
                           struct jot *j);
