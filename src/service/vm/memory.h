/*
 * Files with the memory of vms: "$CARREL_HOME/memory/MACHINE.STEP" for a step that was taken with
 * memory. The spawner writes them (base/wire/vm_memory.h); they are deleted with their step.
 */
#pragma once

#include "io/place.h"
#include "service/state.h"
#include "store/steps.h"

enum { MEMORY_PATH_SIZE = PLACE_SIZE + 64 };

void memory_path(const struct service *s, const char *machine, const char *step,
                 char ret[MEMORY_PATH_SIZE]);

/* Makes the folder and checks that the machine is a vm that runs. */
int memory_check(const struct live *l, struct err *err);

/*
 * Bytes of the files with memory of the machines of an owner. token: only of those that it made;
 * machine: only of this one; NULL: of all.
 */
uint64_t memory_used(struct service *s, const char *owner, const char *token, const char *machine);

/* Disk space that is reserved while memory is saved. */
struct memory_hold {
    struct caller who;     /* of the machine */
    struct disk_hold hold; /* bytes: how large the file may become */
    bool is_held;
};

/*
 * Reserves what the quotas and the disk limit of the machine leave for one more file. ERR_LIMIT:
 * nothing.
 */
int memory_hold(struct live *l, struct memory_hold *h, struct err *err);
void memory_release(struct service *s, struct memory_hold *h);

/* Blocks: the names of the files are on disk afterwards. */
int memory_sync(const struct service *s, struct err *err);

/*
 * Finds the memory in which a paused vm without a box goes on. ret_step: id of its step. Fails with
 * ERR_UNSUPPORTED if it is gone.
 */
int memory_of_paused(const struct live *l, char ret[MEMORY_PATH_SIZE], char ret_step[ID_SIZE],
                     struct err *err);

/* Deletes the memory of a step; step NULL: of all steps of the machine. */
void memory_forget(const struct service *s, const char *machine, const char *step);

/*
 * Deletes the memory of a step, which stays with its files. Its row is read again, because it may
 * have changed.
 */
void memory_drop(const struct service *s, const char *machine, const char *step);

/*
 * What a step is that a pause took. memory_drop_pauses() drops the memory of those whose machine
 * has a box: the pause was interrupted, or was undone and the memory not dropped yet.
 */
#define MEMORY_OF_PAUSE "pause"
void memory_drop_pauses(const struct live *l);

/* At the start of the daemon: deletes what no step of a live machine has. */
void memory_sweep(struct service *s);

/*
 * Whether a step has memory is in its row, after the words that say how it was taken. A step whose
 * file is damaged or gone still has its files.
 */
#define STEP_MEMORY ", memory"
bool step_has_memory(const struct step_row *row);
