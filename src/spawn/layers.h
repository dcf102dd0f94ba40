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
#include "base/plan.h"
#include "spawn/overlays.h"
#include "spawn/undertaker.h"

struct spawner;
struct box;
struct rootfs;
struct chore_state;
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

/* KEEP: the others go; their removal is the undertaker's. */
int layers_keep(struct spawner *s, struct plan_message *m, struct undertaker *u, struct err *err);

/* A box that is not ending; NULL with *err. */
struct box *layers_live_box(struct spawner *s, const char *id, struct err *err);
/* A read-only view of the disk of that name, as it is. */
int layers_disk(struct spawner *s, const char *name, struct err *err);
/* On a writable disk: all layers go but those of the list, "3 7-9", and those that are used. */
enum { SHED_USED = 4 };
struct shed {
    const char *keep;
    uint32_t used[SHED_USED]; /* 0: none */
    bool halves; /* so does what somebody began and did not finish, whoever was killed over it */
};
int layers_shed(int disk, const struct shed *plan, struct undertaker *u, struct err *err);

/* TELL: `network` of its machine.json, which the box sees at once and cannot change. */
int layers_tell(struct spawner *s, struct plan_message *m, struct err *err);

/* MERGE: `busy` while it is done by the undertaker, so ask again; then it is done, or why not. */
int layers_merge(struct spawner *s, struct plan_message *m, struct undertaker *u, struct err *err);
/* What the undertaker says of one. */
void chore_done(struct chore_state *c, const struct undertaker_word *word);
/*
 * A layer that is not there yet: 0 if it may be begun; else it is under way (`busy`), or could not
 * be made, which is told once.
 */
int chore_ask(struct box *box, enum chore chore, uint32_t number, const char *what,
              struct err *err);

/* For a new box: other overlays and further disks in place of those its root was made with. */
int layers_restack(struct spawner *s, const struct plan *plan, struct rootfs *r, struct err *err);
/* What of that the box has to remember. */
void layers_enter(struct spawner *s, struct box *box, const struct plan *plan);

/* After a crash: a switch that was begun is finished or taken back. */
void layers_recover(struct spawner *s, struct box *box);

/* A root that was left is closed by the undertaker once its guest is gone from it. */
void layers_tidy(struct spawner *s, struct undertaker *u);
bool layers_untidy(const struct spawner *s);
