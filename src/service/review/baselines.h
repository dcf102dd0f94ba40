/*
 * Baselines: the contents of directories at the time they were granted as copies
 * (base/fs/baseline.h), one file each below $CARREL_HOME/baselines/MACHINE. A change set has a hard
 * link to its baseline, so that the baseline outlives the machine. Only src/service may include
 * this header. `place` is the path of the grant in the machine.
 */
#pragma once

#include "service/state.h"

/* Records the files of the directory `dir`, which is granted at `place`. Any thread; blocks. */
int baseline_make(const struct service *s, const char *machine, const char *place, int dir,
                  struct err *err);
/*
 * Creates an empty baseline for a granted file; lines are added when files are shipped. durable:
 * blocks until the baseline is on disk.
 */
int baseline_begin(const struct service *s, const char *machine, const char *place, bool durable,
                   struct err *err);
/* Makes `path` a hard link to the baseline, if the baseline exists. */
void baseline_keep(const struct service *s, const char *machine, const char *place,
                   const char *path);
/* Deletes all baselines of an ended machine. */
void baselines_remove(const struct service *s, const char *machine);
