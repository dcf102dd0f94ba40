/*
 * Functions that both OpenAI codecs, Chat Completions and Responses, share.
 *
 * Only for src/model/chat.c and responses.c; names that differ between the formats are arguments.
 */
#pragma once

#include "model/inner.h"

/* OpenAI counts cached tokens as input too; struct model_usage does not. `names` are the member
 * names of the format. */
struct openai_usage_names {
    const char *in, *out, *in_details, *out_details;
};
void openai_get_usage(struct model_answer *a, const json_t *usage,
                      const struct openai_usage_names *names);
void openai_put_usage(struct jot *j, const struct model_usage *u,
                      const struct openai_usage_names *names);
void openai_put_failure(enum model_failure failure, const char *message, bool in_band,
                        struct jot *j);
/* Write and read "tool_choice". nested: the name of a chosen tool is in an object "function". */
void openai_put_choice(struct jot *j, const struct model_request *r, bool nested);
void openai_get_choice(struct hearing *h, const json_t *choice);
void openai_put_image_url(struct jot *j, const char *name, const struct model_part *p);
void openai_name_answer(struct model_answer *a, const json_t *root);
