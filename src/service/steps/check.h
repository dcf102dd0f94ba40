/*
 * Verifies the layers of the store: every layer that a step or root refers to exists. A layer that
 * nothing refers to is a leftover and is deleted with the next pruning.
 *
 * A machine's own layers are looked up on its disk; layers of ancestors are checked by mounting
 * them. Machines are checked one at a time, each between two of its steps.
 */
#pragma once

#include "service/service.h"

struct store_problem {
    const char *machine; /* which names it, or has it */
    const char *layer;   /* as in a stack, or NULL */
    const char *what, *remedy;
};

struct store_check {
    uint64_t machines;  /* that were looked at */
    uint64_t unchecked; /* that could not be: they start, end, or do not answer */
    uint64_t stacks;    /* of steps and roots */
    uint64_t layers;    /* that are named, each once */
    uint64_t leftovers; /* that nobody names */
    uint64_t problems;
};

typedef void store_problem_fn(void *arg, const struct store_problem *problem);
typedef void store_check_fn(void *arg, const struct store_check *check, const struct err *err);

/* Of the machines that the caller may see. `problem` for each, then `done`. */
void service_store_check(struct service *s, const struct caller *who, store_problem_fn *problem,
                         store_check_fn *done, void *arg);
