/*
 * Baselines: the contents of directories at the time they were granted as copies
 * (base/fs/baseline.h), one file each below $CARREL_HOME/baselines/MACHINE. A change set keeps its
 * own link, so the baseline outlives the machine. Only for src/service.
 */
#pragma once

#include "service/state.h"

/* Records the directory mounted at `place`. Any thread; blocks. */
int baseline_make(const struct service *s, const char *machine, const char *place, int dir,
                  struct err *err);
/*
 * For a granted file: the baseline starts empty and gets what is shipped. durable: blocks until it
 * is on disk.
 */
int baseline_begin(const struct service *s, const char *machine, const char *place, bool durable,
                   struct err *err);
/* Links the baseline to `path`, if there is one. */
void baseline_keep(const struct service *s, const char *machine, const char *place,
                   const char *path);
/* Deletes all baselines of an ended machine. */
void baselines_remove(const struct service *s, const char *machine);
