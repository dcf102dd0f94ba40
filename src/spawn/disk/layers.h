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

/* ROOT. m becomes the answer; *ret_root is a descriptor of it, or -1 if nothing was changed. */
int layers_root(struct spawner *s, struct plan_message *m, int *ret_root, struct err *err);

/* VIEW and DISK: read-only, with ids as they are on disk; how many descriptors, or -1. */
int layers_view(struct spawner *s, struct plan_message *m, int ret_dirs[2], struct err *err);

/* UPPERS: directories, and the numbers of their grants as text. */
int layers_uppers(struct spawner *s, const struct box *box, char ret_numbers[PLAN_TEXT_SIZE],
                  struct verb_fds *ret, struct err *err);

/* The same for ourselves: root and /usr, the latter -1 where the root has its own. */
int layers_open_view(struct spawner *s, const char *machine, const char *stack, int ret_dirs[2],
                     struct err *err);

/* A box that is not ending; NULL with *err. */
struct box *layers_live_box(struct spawner *s, const char *id, struct err *err);
/* Its own disk, writable, as it is; -errno. */
int layers_own_disk(struct spawner *s, const struct box *box);
/* The directory of its machine.json, writable; -errno. */
int layers_own_meta(struct spawner *s, const struct box *box);
/* A read-only view of the disk of that name, as it is. */
int layers_disk(struct spawner *s, const char *name, struct err *err);

/* For a new box: other overlays and further disks in place of those its root was made with. */
int layers_restack(struct spawner *s, const struct plan *plan, struct rootfs *r, struct err *err);
/* What of that the box has to remember. */
void layers_enter(struct spawner *s, struct box *box, const struct plan *plan);

/* After a crash: a switch that was begun is finished or taken back. */
void layers_recover(struct spawner *s, struct box *box);

/* A root that was left is closed by the undertaker once its guest is gone from it. */
void layers_tidy(struct spawner *s, struct undertaker *u);
bool layers_untidy(const struct spawner *s);
