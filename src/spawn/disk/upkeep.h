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

/* KEEP: deletes all other layers; the undertaker removes them. */
int upkeep_keep(struct spawner *s, struct plan_message *m, struct undertaker *u, struct err *err);

/* On a writable disk: deletes all layers except those in the list ("3 7-9") and used ones. */
enum { SHED_USED = 4 };
struct shed {
    const char *keep;
    uint32_t used[SHED_USED]; /* 0: none */
    bool halves;              /* also delete unfinished layers of killed processes */
};
int upkeep_shed(int disk, const struct shed *plan, struct undertaker *u, struct err *err);

/* Continues interrupted deletions in the store. */
void upkeep_resume(struct spawner *s, struct undertaker *u);

/* TELL: replaces `network` in machine.json, which the box sees at once and cannot change. */
int upkeep_tell(struct spawner *s, struct plan_message *m, struct err *err);

/* MERGE: `busy` while the undertaker works, so ask again; then the result. */
int upkeep_merge(struct spawner *s, struct plan_message *m, struct undertaker *u, struct err *err);
/* Stores a report of the undertaker. */
void chore_done(struct chore_state *c, const struct undertaker_word *word);
/*
 * Whether a missing layer may be started: 0; else it is in progress (`busy`), or has failed, which
 * is reported once.
 */
int chore_ask(struct box *box, enum chore chore, uint32_t number, const char *what,
              struct err *err);
