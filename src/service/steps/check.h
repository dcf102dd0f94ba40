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
    const char *machine; /* id of the machine with the problem */
    const char *layer;   /* such as "m-.../7"; NULL: the problem is not about one layer */
    const char *what, *remedy;
};

struct store_check {
    uint64_t machines;  /* machines checked */
    uint64_t unchecked; /* machines not checked: starting, ending or not answering */
    uint64_t stacks;    /* stacks (lists of layers) of steps and roots */
    uint64_t layers;    /* distinct layers with a reference */
    uint64_t leftovers; /* layers without a reference */
    uint64_t problems;
};

typedef void store_problem_fn(void *arg, const struct store_problem *problem);
typedef void store_check_fn(void *arg, const struct store_check *check, const struct err *err);

/* Checks the machines that the caller may see. Calls `problem` for each problem, then `done`. */
void service_store_check(struct service *s, const struct caller *who, store_problem_fn *problem,
                         store_check_fn *done, void *arg);
