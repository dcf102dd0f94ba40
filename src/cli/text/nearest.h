/*
 * "Did you mean": finds the known word that is nearest to a mistyped one.
 *
 * A candidate counts only if a few typing mistakes explain the difference, or if one word begins
 * with the other: a wrong guess is worse than none.
 */
#pragma once

#include <stddef.h>

struct nearest {
    const char *word; /* the word as typed */
    size_t len;       /* how many of its characters are compared */
    const char *best; /* the nearest candidate; NULL: none is near enough */
    size_t distance;  /* typing mistakes between `word` and `best` */
};

#define NEAREST(typed) ((struct nearest){.word = (typed), .len = strlen(typed)})

/* Keeps the candidate if it is nearer than those before it. The candidate must outlive `n`. */
void nearest_try(struct nearest *n, const char *candidate);
