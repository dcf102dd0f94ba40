/*
 * The nursery: a small process in which the processes of berths are born.
 *
 * A clone copies its parent's descriptor table and memory map, and the spawner's grow with every
 * box. The nursery holds a handful of descriptors for ever, so the thousandth box costs what the
 * first did. What it bears are the spawner's children, not its own. It ends with the spawner.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"

struct spawner;
struct berth;

struct nursery {
    pid_t pid;  /* 0: not running */
    int socket; /* -1 */
};

/* Starts it if it is not running. */
int nursery_open(struct spawner *s, struct err *err);
void nursery_close(struct nursery *n);

/*
 * A process for this berth, in new pid, ipc and uts namespaces, running child_main(). dev and
 * orders are the descriptors of struct child; they stay the caller's.
 */
int nursery_bear(struct spawner *s, struct berth *b, int dev, int orders, struct err *err);
