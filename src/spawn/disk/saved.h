/*
 * Saved layers: copies of a machine's layers in the store, synced, under a name that outlives the
 * host. `saved/d-4kq2x7w3n5ab/7` is a layer as on any disk, so a stack may name it.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/wire/plan.h"

struct spawner;
struct undertaker;

bool saved_is_name(const char *name);

/* Detached read-only mounts of such a disk; 0 or -errno. */
int saved_clone(const struct spawner *s, const char *name, int *ret, int copies);

/*
 * Were the layers of this stack saved from a machine over other packages of the host than those of
 * now? Each disk says what its machine lay on.
 */
bool saved_drifted(const struct spawner *s, const char *stack);

/* To write to; or -errno. */
int saved_open(const struct spawner *s, const char *name);

/* SAVE: one layer becomes that of another number there. `busy` while it is copied: ask again. */
int saved_copy(struct spawner *s, const struct plan_message *m, struct undertaker *u,
               struct err *err);

/*
 * COPY: what a box's upper holds becomes a layer of that number too, beside it; m becomes the
 * answer. Whoever asks sees to it that nothing is written meanwhile. Number 0, before that: what
 * would make it slow is done while the box runs; `unsupported`: it takes what was changed.
 */
int upper_copy(struct spawner *s, struct plan_message *m, struct undertaker *u, struct err *err);

/* SHED: layers that are not in the list go; without a list the whole disk. */
int saved_shed(struct spawner *s, const struct plan_message *m, struct undertaker *u,
               struct err *err);
