/*
 * Saved layers: synced copies of a machine's layers in the store, which survive a crash of the
 * host. Each directory of saved layers is used like a disk: `saved/d-4kq2x7w3n5ab/7` is layer 7 of
 * disk d-4kq2x7w3n5ab, and the list of layers of a root (stack) may name it.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/wire/plan.h"

struct spawner;
struct undertaker;

bool saved_is_name(const char *name);

/* Creates detached read-only mounts of a directory of saved layers; 0 or -errno. */
int saved_clone(const struct spawner *s, const char *name, int *ret, int copies);

/*
 * True if the host's packages have changed since the layers of this stack were saved. Each
 * directory of saved layers records the version of the packages.
 */
bool saved_drifted(const struct spawner *s, const char *stack);

/* Opens a directory of saved layers for writing; -errno on failure. */
int saved_open(const struct spawner *s, const char *name);

/*
 * Handles the request SAVE: copies a layer of a machine to a directory of saved layers, under
 * another layer number. ERR_BUSY while the copy is in progress: the daemon asks again.
 */
int saved_copy(struct spawner *s, const struct plan_message *m, struct undertaker *u,
               struct err *err);

/*
 * Handles the request COPY: copies the upper (writable layer) of a box to a layer with the number
 * m->layer; m becomes the answer. The caller must prevent writes meanwhile. Number 0: only syncs
 * the disk, while the box runs; ERR_UNSUPPORTED: the disk has no snapshots, so a copy would have to
 * copy all changed files.
 */
int upper_copy(struct spawner *s, struct plan_message *m, struct undertaker *u, struct err *err);

/*
 * Handles the request SHED: deletes the saved layers that are not in the request's list; without a
 * list, the whole directory of saved layers.
 */
int saved_shed(struct spawner *s, const struct plan_message *m, struct undertaker *u,
               struct err *err);
