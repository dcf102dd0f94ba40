/*
 * Which layers of a stack to merge, so that stacks stay short: the binary counter's way.
 *
 * A layer weighs as many steps as went into it. The uppermost ones are merged with those below for
 * as long as these do not weigh more than all above together; so a stack of n steps has about
 * log2(n) layers, and a file is linked as often.
 */
#pragma once

#include "base/layers.h"

/* Numbers of merged layers say how heavy they are: LAYER_MERGED times a logarithm. */
enum { LAYER_MERGED = 10000000 };

/* What to merge: `count` layers from `first` on into a layer of number `into`. 0: nothing. */
struct compaction {
    size_t first, count;
    uint32_t into;
};

/* Only layers of that machine are merged. */
struct compaction compact_plan(const struct layers *l, const char *machine);

/*
 * All of them into one, as a full disk needs: each layer of a counter may hold another version of
 * the same large file. `upper` is the number of the upper above them, which no other merged layer
 * of this machine has in its own unless it holds the same files.
 */
struct compaction compact_all(const struct layers *l, const char *machine, uint32_t upper);

/* Puts the merged layer in their place, wherever they are now; false: they are not there. */
bool compact_apply(struct layers *l, const struct layers *run, const char *machine, uint32_t into);
