/*
 * The nursery: a small process that forks the processes of berths (prepared boxes).
 *
 * A clone copies the parent's descriptor table and memory map, and those of the spawner grow with
 * every box. The nursery holds few descriptors, so the thousandth box costs the same as the first.
 * Its forks are children of the spawner. It ends with the spawner.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"

struct spawner;
struct berth;

struct nursery {
    pid_t pid;  /* 0: the nursery is not running */
    int socket; /* -1: the nursery is not running */
};

/* Starts the nursery if it is the nursery is not running. */
int nursery_open(struct spawner *s, struct err *err);
void nursery_close(struct nursery *n);

/*
 * Forks a process for this berth, in new pid, ipc and uts namespaces, which runs child_main(). dev
 * and orders: as in struct child; owned by the caller.
 */
int nursery_bear(struct spawner *s, struct berth *b, int dev, int orders, struct err *err);
