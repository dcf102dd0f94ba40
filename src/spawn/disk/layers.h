/*
 * Freezing, rewinding and forking of machines: replaces a box's root by other layers and a new
 * upper (writable layer), while its guest (pid 1 of the box) runs.
 *
 * The spawner makes all mounts, in the box's mount namespace. The guest only gets a descriptor of
 * the new root and enters it. The old upper becomes a layer only if the old root could be made
 * read-only: then no process can write to it. The intended switch is in the box's record before it
 * happens, so that the next spawner can finish or undo it after a crash.
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

/*
 * Handles the request ROOT: switches a box to a new root. m becomes the answer; *ret_root:
 * descriptor of the new root, or -1 if nothing changed.
 */
int layers_root(struct spawner *s, struct plan_message *m, int *ret_root, struct err *err);

/*
 * Detaches the root that a box has left. The kernel waits for all CPUs then, so the request ROOT is
 * answered before.
 */
void layers_detach_old(struct spawner *s, const struct box *box);

/*
 * Handles the requests VIEW and DISK: opens layers or a disk read-only, with user ids as stored on
 * disk. Returns the number of descriptors, or -1.
 */
int layers_view(struct spawner *s, struct plan_message *m, int ret_dirs[2], struct err *err);

/*
 * Handles the request UPPERS: opens the directories with the changes of copy-on-write grants, and
 * writes the numbers of these grants to ret_numbers.
 */
int layers_uppers(struct spawner *s, const struct box *box, char ret_numbers[PLAN_TEXT_SIZE],
                  struct verb_fds *ret, struct err *err);

/*
 * Like layers_view(), for the spawner itself: opens root and /usr of the layers; ret_dirs[1] is -1
 * if the root contains /usr. ret_usr: also what is below that /usr; or NULL. The caller closes the
 * descriptors.
 */
struct layers_usr;
int layers_open_view(struct spawner *s, const char *machine, const char *stack, int ret_dirs[2],
                     struct layers_usr *ret_usr, struct err *err);

/* What a machine changed in the host's /usr: that directory, and the layers above it. */
struct layers_usr {
    int base;                   /* -1: the machine does not use it */
    int uppers[LAYERS_MAX + 1]; /* topmost first */
    size_t count;
};

/* What a machine changed in an image: its merged files, and the layers that contain changes. */
struct layers_changes {
    int root;
    int uppers[LAYERS_MAX + IMAGE_BELOW_MAX]; /* topmost first */
    size_t count;
};

/*
 * Handles a DRAW of changes: opens them read-only. The first m->layer layers of the stack differ
 * from the image m->text; if the machine's own image is above that one, its layers differ too. The
 * caller closes the descriptors.
 */
int layers_open_changes(struct spawner *s, const struct plan_message *m, struct layers_changes *ret,
                        struct err *err);

/* Finds a box that is not ending. Returns NULL with *err if there is none. */
struct box *layers_live_box(struct spawner *s, const char *id, struct err *err);
/* Opens the box's own disk, writable, with user ids as stored on disk; -errno on failure. */
int layers_own_disk(struct spawner *s, const struct box *box);
/* Opens the directory of the box's machine.json, writable; -errno on failure. */
int layers_own_meta(struct spawner *s, const struct box *box);
/*
 * Opens a read-only mount of the disk of that name, with user ids as stored on disk; -1 on failure.
 */
int layers_disk(struct spawner *s, const char *name, struct err *err);

/*
 * For a new box from layers: replaces the overlays of its berth (the prepared box) and adds the
 * disks of the layers.
 */
int layers_restack(struct spawner *s, const struct plan *plan, struct rootfs *r, struct err *err);
/* Records in the box the disks of the layers that it was created from. */
void layers_enter(struct spawner *s, struct box *box, const struct plan *plan);

/* After a crash of the spawner: finishes or undoes an interrupted switch of the root. */
void layers_recover(struct spawner *s, struct box *box);

/* Lets the undertaker close old roots that the guest has left. */
void layers_tidy(struct spawner *s, struct undertaker *u);
bool layers_untidy(const struct spawner *s);
