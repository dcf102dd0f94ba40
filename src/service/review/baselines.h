/*
 * Baselines: the contents of directories at the time they were granted as copies
 * (base/fs/baseline.h), one file each below $CARREL_HOME/baselines/MACHINE. A change set keeps its
 * own link, so the baseline outlives the machine. Only for src/service.
 */
#pragma once

#include "service/state.h"

/* Of what is mounted at `place`. From any thread; it blocks. */
int baseline_make(const struct service *s, const char *machine, const char *place, int dir,
                  struct err *err);
/* Of a file that was handed over: nothing is known but what is shipped from now on. durable: it
 * blocks until that is on the disk. */
int baseline_begin(const struct service *s, const char *machine, const char *place, bool durable,
                   struct err *err);
/* As `path`, if there is one. */
void baseline_keep(const struct service *s, const char *machine, const char *place,
                   const char *path);
/* The machine has ended. */
void baselines_remove(const struct service *s, const char *machine);
