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

/* Deletes the memory of a step; step NULL: of all steps of the machine. */
void memory_forget(const struct service *s, const char *machine, const char *step);

/* At the start of the daemon: deletes what no step of a live machine has. */
void memory_sweep(struct service *s);

/*
 * Whether a step has memory is in its row, after the words that say how it was taken. A step whose
 * file is damaged or gone still has its files.
 */
#define STEP_MEMORY ", memory"
bool step_has_memory(const struct step_row *row);
