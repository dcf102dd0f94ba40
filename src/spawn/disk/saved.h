/*
 * Saved layers: synced copies of a machine's layers in the store, which survive a crash of the
 * host. The directory of saved layers is a disk like others: `saved/d-4kq2x7w3n5ab/7` is layer 7 of
 * disk d-4kq2x7w3n5ab, and a stack may name it.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/wire/plan.h"

struct spawner;
struct undertaker;

bool saved_is_name(const char *name);

/* Creates detached read-only mounts of such a disk; 0 or -errno. */
int saved_clone(const struct spawner *s, const char *name, int *ret, int copies);

/*
 * True if the host's packages have changed since the layers of this stack were saved. Each disk
 * records the version of the packages.
 */
bool saved_drifted(const struct spawner *s, const char *stack);

/* Opens such a disk for writing; -errno on failure. */
int saved_open(const struct spawner *s, const char *name);

/*
 * Handles SAVE: copies a layer to such a disk, under another number. ERR_BUSY while the copy is in
 * progress: ask again.
 */
int saved_copy(struct spawner *s, const struct plan_message *m, struct undertaker *u,
               struct err *err);

/*
 * Handles COPY: copies the upper (writable layer) of a box to a layer of that number; m becomes the
 * answer. The caller must prevent writes meanwhile. Number 0: only syncs the disk, while the box
 * runs; ERR_UNSUPPORTED: a copy would have to copy all changed files.
 */
int upper_copy(struct spawner *s, struct plan_message *m, struct undertaker *u, struct err *err);

/*
 * Handles SHED: deletes the saved layers that are not in the list; without a list the whole disk.
 */
int saved_shed(struct spawner *s, const struct plan_message *m, struct undertaker *u,
               struct err *err);
