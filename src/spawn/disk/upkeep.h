/*
 * Maintenance of the disk of a box: delete unused layers, merge several layers into one, and
 * replace machine.json. What a root is made of is in layers.h.
 */
#pragma once

#include "base/err.h"
#include "base/wire/plan.h"
#include "spawn/undertaker.h"

struct spawner;
struct box;
struct chore_state;

/* KEEP: the others go; their removal is the undertaker's. */
int upkeep_keep(struct spawner *s, struct plan_message *m, struct undertaker *u, struct err *err);

/* On a writable disk: all layers go but those of the list, "3 7-9", and those that are used. */
enum { SHED_USED = 4 };
struct shed {
    const char *keep;
    uint32_t used[SHED_USED]; /* 0: none */
    bool halves; /* so does what somebody began and did not finish, whoever was killed over it */
};
int upkeep_shed(int disk, const struct shed *plan, struct undertaker *u, struct err *err);

/* What was thrown away in the store, and whose wiping was interrupted. */
void upkeep_resume(struct spawner *s, struct undertaker *u);

/* TELL: `network` of its machine.json, which the box sees at once and cannot change. */
int upkeep_tell(struct spawner *s, struct plan_message *m, struct err *err);

/* MERGE: `busy` while it is done by the undertaker, so ask again; then it is done, or why not. */
int upkeep_merge(struct spawner *s, struct plan_message *m, struct undertaker *u, struct err *err);
/* What the undertaker says of one. */
void chore_done(struct chore_state *c, const struct undertaker_word *word);
/*
 * A layer that is not there yet: 0 if it may be begun; else it is under way (`busy`), or could not
 * be made, which is told once.
 */
int chore_ask(struct box *box, enum chore chore, uint32_t number, const char *what,
              struct err *err);
