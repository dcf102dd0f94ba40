/*
 * Bases of clones: for each granted repository the layer in which it was cloned. That layer and the
 * layers below it are the state that a review compares with.
 *
 * The grant has the layer in its detail ("layer": "m-4kq2x7w3n5ab/7"), so that forks inherit it and
 * a machine keeps it when its steps are gone. A base is not merged with layers above it. Only
 * src/service may include this header.
 */
#pragma once

#include "base/layers.h"
#include "service/state.h"

enum { BASES_MAX = 8 };

struct bases {
    struct layer v[BASES_MAX];
    size_t count;
};

/* Lists the bases of a machine. Those of new clones are found by their step, and recorded. */
void bases_load(const struct live *l, struct bases *ret);
bool bases_have(const struct bases *b, const struct layer *l);
/* Finds the state after command `exec` cloned a repository. False: unknown. */
bool bases_stack(const struct live *l, const char *exec, char ret[LAYERS_TEXT_SIZE]);
/* Call it in the transaction that replaces the layers of stack `from` by their copies `to`. */
int bases_move(const struct live *l, const char *from, const char *to, struct err *err);
