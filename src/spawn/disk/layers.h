/*
 * Freezing, rewinding and forking: a box's root becomes other layers and a new upper, while its
 * guest lives.
 *
 * Every mount is made here, in the box's mount namespace; the guest only gets a descriptor of the
 * new root and steps into it. That the old root could be made read-only is the proof that nobody
 * writes to what is now a layer. What is about to be done is in the box's record before it is done,
 * so that the next spawner finishes it or takes it back.
 */
#pragma once

#include "base/err.h"
#include "base/wire/plan.h"
#include "spawn/disk/overlays.h"
#include "spawn/undertaker.h"

struct spawner;
struct box;
struct rootfs;
struct verb_fds;

/* ROOT. m becomes the answer; *ret_root: the new root, or -1 if nothing changed. */
int layers_root(struct spawner *s, struct plan_message *m, int *ret_root, struct err *err);

/* VIEW and DISK: read-only, with ids as on disk; returns the number of descriptors, or -1. */
int layers_view(struct spawner *s, struct plan_message *m, int ret_dirs[2], struct err *err);

/* UPPERS: directories, and the numbers of their grants as text. */
int layers_uppers(struct spawner *s, const struct box *box, char ret_numbers[PLAN_TEXT_SIZE],
                  struct verb_fds *ret, struct err *err);

/* The same for the spawner itself: root and /usr; /usr is -1 if the root contains it. */
int layers_open_view(struct spawner *s, const char *machine, const char *stack, int ret_dirs[2],
                     struct err *err);

/* A box that is not ending; NULL with *err. */
struct box *layers_live_box(struct spawner *s, const char *id, struct err *err);
/* The box's own disk, writable, with ids as on disk; -errno. */
int layers_own_disk(struct spawner *s, const struct box *box);
/* The directory of its machine.json, writable; -errno. */
int layers_own_meta(struct spawner *s, const struct box *box);
/* A read-only mount of the disk of that name, with ids as on disk. */
int layers_disk(struct spawner *s, const char *name, struct err *err);

/* For a new box: replaces the overlays of its berth and adds further disks. */
int layers_restack(struct spawner *s, const struct plan *plan, struct rootfs *r, struct err *err);
/* Records that in the box. */
void layers_enter(struct spawner *s, struct box *box, const struct plan *plan);

/* After a crash: finishes or undoes a begun switch. */
void layers_recover(struct spawner *s, struct box *box);

/* Lets the undertaker close old roots that the guest has left. */
void layers_tidy(struct spawner *s, struct undertaker *u);
bool layers_untidy(const struct spawner *s);
