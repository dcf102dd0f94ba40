/*
 * Maintenance of the disk of a box: delete unused layers, merge several layers into one, and
 * replace machine.json. The root of a box is changed in layers.h.
 */
#pragma once

#include "base/err.h"
#include "base/wire/plan.h"
#include "spawn/undertaker.h"

struct spawner;
struct box;
struct chore_state;

/*
 * Handles the request KEEP: deletes all layers of a box's disk that the request does not list. The
 * undertaker removes their files.
 */
int upkeep_keep(struct spawner *s, struct plan_message *m, struct undertaker *u, struct err *err);

/*
 * upkeep_shed() deletes all layers of a writable disk, except those in `keep` ("3 7-9") and `used`.
 */
enum { SHED_USED = 4 };
struct shed {
    const char *keep;
    uint32_t used[SHED_USED]; /* numbers of layers in use; 0: none */
    bool halves;              /* also delete unfinished layers of killed processes */
};
int upkeep_shed(int disk, const struct shed *plan, struct undertaker *u, struct err *err);

/* Continues interrupted deletions in the store. */
void upkeep_resume(struct spawner *s, struct undertaker *u);

/*
 * Handles the request TELL: replaces the grants and the network in machine.json, the file in a box
 * that describes its machine. The box sees the new content at once, but cannot change the file.
 */
int upkeep_tell(struct spawner *s, struct plan_message *m, struct err *err);

/*
 * Handles the request MERGE: ERR_BUSY while the undertaker merges, so that the daemon asks again;
 * then the result.
 */
int upkeep_merge(struct spawner *s, struct plan_message *m, struct undertaker *u, struct err *err);
/* Number of a CHORE_COPY that only syncs the disk. No layer has it. */
enum { CHORE_SYNC_ONLY = LAYER_NUMBER_MAX + 1 };
/* Stores the result that the undertaker reported for work on a layer in the box's state. */
void chore_done(struct chore_state *c, const struct undertaker_word *word);
/*
 * Returns 0 if the work on layer `number` may be started. Else sets ERR_BUSY if work is in
 * progress, or the error of the previous attempt, which is reported once. what: the work, for the
 * error text, such as "save layers of".
 */
int chore_ask(struct box *box, enum chore chore, uint32_t number, const char *what,
              struct err *err);
