/*
 * Dumps of interpreters for commands of cell machines (cell/dump.h).
 *
 * A dump is made once for an image and an interpreter, of the files of the image alone: no machine
 * and no caller has a part in it. A worker maps it and trusts it, so only the daemon writes the
 * directory `dumps` of the store. The worker compares the times of the machine's files with those
 * in the dump, and does not use it if the machine has changed them.
 */
#pragma once

#include "service/state.h"

/*
 * Opens the dump for a command with these words. -1: there is none. Then one is made for later
 * commands, unless that has failed before.
 */
int dumps_open(struct live *l, const char *const *words);

/* Called when the daemon ends: kills the worker that makes a dump, for which jobs would wait. */
void dumps_stop(struct service *s);
/* Deletes the dumps of an image, whose files are deleted too. */
void dumps_forget(struct service *s, const char *image);
/* Called when the daemon starts: deletes dumps of images that are gone, and unfinished ones. */
void dumps_sweep(struct service *s);
