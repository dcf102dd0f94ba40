/*
 * "Did you mean": the known word that a mistyped one stands for.
 *
 * A candidate counts only if a few typing mistakes explain the difference, or if one word begins
 * with the other: a wrong guess is worse than none.
 */
#pragma once

#include <stddef.h>

struct nearest {
    const char *word; /* as typed */
    size_t len;       /* of it that counts */
    const char *best; /* NULL: no candidate is near enough */
    size_t distance;  /* of best */
};

#define NEAREST(typed) ((struct nearest){.word = (typed), .len = strlen(typed)})

/* Keeps the candidate if it is nearer than those before it. It outlives `n`. */
void nearest_try(struct nearest *n, const char *candidate);
