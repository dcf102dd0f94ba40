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
 * True if the layers of this stack were saved over other packages of the host than the present
 * ones. Each disk records that.
 */
bool saved_drifted(const struct spawner *s, const char *stack);

/* Opens it for writing, or -errno. */
int saved_open(const struct spawner *s, const char *name);

/* SAVE: copies a layer to another number there. `busy` while it is copied: ask again. */
int saved_copy(struct spawner *s, const struct plan_message *m, struct undertaker *u,
               struct err *err);

/*
 * COPY: copies the upper of a box to a layer of that number; m becomes the answer. The caller must
 * prevent writes meanwhile. Number 0: does the slow part before, while the box runs; `unsupported`:
 * a copy would copy all changes.
 */
int upper_copy(struct spawner *s, struct plan_message *m, struct undertaker *u, struct err *err);

/* SHED: deletes the layers that are not in the list; without a list the whole disk. */
int saved_shed(struct spawner *s, const struct plan_message *m, struct undertaker *u,
               struct err *err);
