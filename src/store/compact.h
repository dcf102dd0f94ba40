/*
 * Chooses which layers of a stack (the layers of a root filesystem, top first) to merge, like a
 * binary counter, so that stacks stay short.
 *
 * The weight of a layer is the number of files and directories in it; a merged layer weighs as much
 * as its parts. The top layers are merged with the one below while that one does not weigh more
 * than all above it. So the cost of merges depends on what changed: a layer of 20,000 files is
 * merged again only with as many newer ones. A stack of n files has about log2(n) layers.
 */
#pragma once

#include "base/layers.h"

/*
 * The number of a merged layer is log2(weight) * LAYER_MERGED plus the number of the upper (the
 * writable layer) above it. Uppers are never numbered again, so a merged layer has a number that no
 * other layer of the machine had before, also not under an earlier daemon.
 */
enum { LAYER_MERGED = 10000000 };
/*
 * Layers of old steps that are merged for a full disk (steps/spare.c) get random numbers from here
 * up to LAYER_COPIED, so that they never meet a layer that was merged and deleted before.
 */
enum { LAYER_SPARE = 370000000 };

/* Merge `count` layers from index `first` into layer number `into`. count 0: nothing to do. */
struct compaction {
    size_t first, count;
    uint32_t into;
};

/* True if the number of a layer encodes its weight, so that its files need not be counted. */
bool compact_is_counted(const struct layer *l);

/*
 * Chooses the top layers to merge. Only layers of `machine` are merged. upper: the number of
 * its present upper. entries: the number of files in each layer of `l`; NULL or 0: unknown, and
 * taken for 1.
 */
struct compaction compact_plan(const struct layers *l, const char *machine, uint32_t upper,
                               const uint32_t entries[LAYERS_MAX]);

/*
 * Chooses all layers of `machine`, for a full disk: each layer may hold another version of the same
 * large file.
 */
struct compaction compact_all(const struct layers *l, const char *machine, uint32_t upper);

/*
 * Replaces the layers `run` of `machine` in stack `l` by the merged layer `into`. False: the stack
 * does not contain them.
 */
bool compact_apply(struct layers *l, const struct layers *run, const char *machine, uint32_t into);
