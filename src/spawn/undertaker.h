/*
 * The undertaker: a small process that unmounts the filesystems of dead boxes.
 *
 * The last process in a mount namespace pays for its teardown: about a dozen mounts and three waits
 * for all cpus, which is most of the time to end a box. So the spawner holds the namespaces of an
 * ending box until it is dead, then passes them to the undertaker, which closes them and reports
 * it. The undertaker also closes old roots, and deletes, copies and merges layers. The undertaker
 * ends with the spawner.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/id.h"
#include "spawn/disk/duplicate.h"

struct spawner;

enum { HELD_MOUNTS, HELD_NET, HELD_SPACES };

struct undertaker {
    pid_t pid;  /* 0: the undertaker is not running */
    int socket; /* connection to the undertaker, readable when it reports or is gone; or -1 */
    int closed; /* eventfd: counts the orders whose descriptors the spawner has closed itself */
};

#define UNDERTAKER_NONE ((struct undertaker){.socket = -1, .closed = -1})

/*
 * Opens the namespaces of a process that is about to be killed; held[i] is -1 if that fails. Uses
 * the pidfd if the kernel can (6.11): looking into /proc creates entries there that the kernel must
 * remove at the process's death, which costs more than the death itself.
 */
void spaces_hold(int pidfd, int proc, pid_t pid, int held[HELD_SPACES]);
bool spaces_held(const int held[HELD_SPACES]);
void spaces_close(int held[HELD_SPACES]);

int undertaker_open(struct undertaker *u);
/* Kills the process and waits for it: the next one must not do the same work at the same time. */
void undertaker_close(struct undertaker *u);
/*
 * Kills the process when the spawner ends. The kernel may still remove a filesystem for it, for
 * example one with a million files, which no signal ends: waits for a second at most.
 */
void undertaker_leave(struct undertaker *u);

/*
 * Sends a copy of `fd` to the undertaker, which closes it after the caller closed its own
 * descriptor: only the last close is slow. False: the undertaker is busy.
 */
bool undertaker_close_for(struct undertaker *u, int fd);
/* Like undertaker_close_for(), for several descriptors. */
bool undertaker_close_all(struct undertaker *u, const int *fds, size_t count);
/*
 * Lets the undertaker delete everything in the directory `trash` of `disk`. False: the undertaker
 * is busy.
 */
bool undertaker_wipe(struct undertaker *u, int disk);
/* Work on a layer of a box. The undertaker reports when it ends. */
enum chore { CHORE_NONE, CHORE_MERGE, CHORE_SAVE, CHORE_COPY, CHORES };
/* Lets the undertaker merge layers of box `id`. The caller keeps the ownership of plan->disk. */
struct merge_plan;
bool undertaker_merge(struct undertaker *u, const char *id, const struct merge_plan *plan);

/* Lets the undertaker copy a layer of box `id` from one disk to another. */
bool undertaker_duplicate(struct undertaker *u, const char *id, enum chore chore, int from, int to,
                          const struct duplicate_plan *plan);

/* Lets the undertaker sync a disk, so that a later CHORE_COPY is fast. */
bool undertaker_settle(struct undertaker *u, const char *id, int disk);

/* Passes the held namespaces of box `id` to the undertaker. False: the undertaker is busy, and the
 * caller keeps them; try again later. */
bool undertaker_take(struct undertaker *u, const char *id, int held[HELD_SPACES]);

/* A report: the namespaces of a box are closed, or work on its layers has ended. */
struct undertaker_word {
    char id[ID_SIZE];       /* id of the box; empty: nobody waits for this report */
    enum chore chore;       /* CHORE_NONE: the namespaces of the box are closed */
    enum duplicate_way way; /* how a layer was copied */
    int result;             /* result of the work: 0, or -errno */
    uint64_t generation;    /* CHORE_COPY on btrfs: that of the disk at the work; 0: unknown */
};

/* Reads the next report. 1: *ret is set; 0: none yet; -1: the undertaker is gone, and so is
 * everything it held. */
int undertaker_next(struct undertaker *u, struct undertaker_word *ret);
