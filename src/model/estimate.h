/*
 * Estimates what a model call will use, before it is made: input from the size of the request,
 * output from the last answers of the same account and model.
 *
 * Pure: no I/O and no clock. Every account learns from its own calls only, so a machine cannot make
 * the estimates of others too low.
 */
#pragma once

#include <jansson.h>

#include "model/codec.h"
#include "model/price.h"

enum {
    MODEL_FIRST_OUT = 4096,    /* output of the first call */
    MODEL_IMAGE_TOKENS = 1600, /* input for an image, whatever its size */
};

/* The parts of a request that become input. */
struct model_size {
    uint64_t bytes; /* decoded text and JSON, without images */
    uint64_t images;
};
/*
 * Measures a request: escapes such as \u00e9 count as the character. The bytes of an image are left
 * out, but only where the format has images.
 */
struct model_size model_size_of(const struct model_codec *codec, const json_t *request);

struct model_estimates;
struct model_estimates *model_estimates_new(void);
void model_estimates_free(struct model_estimates *e);

/* The account and the model of a call. row: price and window; NULL: not known. */
struct model_subject {
    const char *account, *model;
    const struct conf_model *row;
};

struct model_guess {
    struct model_usage usage;
    struct cost cost;
};
struct model_guess model_estimate(const struct model_estimates *e, const struct model_subject *who,
                                  const struct model_size *size, uint64_t max_tokens);
/* Returns the cost of the guessed input and of `out` tokens of output. */
struct cost model_guess_cost(const struct model_guess *g, const struct conf_model *row,
                             uint64_t out);
/* Returns how many tokens of output the rest of a budget (UINT64_MAX: no limit) allows. */
uint64_t model_guess_fits(const struct model_guess *g, const struct conf_model *row,
                          const struct cost *left);

/* Estimates the tokens of a part of an answer. */
uint64_t model_estimate_text(const struct model_estimates *e, const struct model_subject *who,
                             uint64_t bytes);

/* Learns from a call whose usage the provider has reported. */
void model_estimate_learn(struct model_estimates *e, const struct model_subject *who,
                          const struct model_size *size, const struct model_usage *usage);
