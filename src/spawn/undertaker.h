/*
 * The undertaker: a small process that unmounts the filesystems of dead boxes.
 *
 * The last process in a mount namespace pays for its teardown: about a dozen mounts and three waits
 * for all cpus, which is most of the time to end a box. So the spawner holds the namespaces of an
 * ending box until it is dead, then passes them to the undertaker, which closes them and reports
 * it. Old roots and unused layers go the same way. The undertaker ends with the spawner.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/id.h"
#include "spawn/disk/duplicate.h"

struct spawner;

enum { HELD_SPACES = 2 };

struct undertaker {
    pid_t pid;  /* 0: not running */
    int socket; /* -1; readable when somebody is buried, or the undertaker is gone */
};

#define UNDERTAKER_NONE ((struct undertaker){.socket = -1})

/*
 * Opens the namespaces of a process that is about to be killed; -1 where that cannot be. By the
 * pidfd where the kernel can (6.11): a look into /proc leaves entries there, which the process's
 * death then has to take away, and costs more than the death itself.
 */
void spaces_hold(int pidfd, int proc, pid_t pid, int held[HELD_SPACES]);
bool spaces_held(const int held[HELD_SPACES]);
void spaces_close(int held[HELD_SPACES]);

int undertaker_open(struct undertaker *u);
void undertaker_close(struct undertaker *u);

/* Closes its copy of a descriptor: the last one may take long. False: it is too busy. */
bool undertaker_close_for(struct undertaker *u, int fd);
/* The same for several, which the caller then has to close. */
bool undertaker_close_all(struct undertaker *u, const int *fds, size_t count);
/* Removes what is in the directory `trash` there, whatever it is. */
bool undertaker_wipe(struct undertaker *u, int disk);
/* What is done about a layer of a box; its end is told. */
enum chore { CHORE_NONE, CHORE_MERGE, CHORE_SAVE, CHORE_COPY, CHORES };
/* Merges layers of that box. plan->disk stays the caller's. */
struct merge_plan;
bool undertaker_merge(struct undertaker *u, const char *id, const struct merge_plan *plan);

/* Copies a layer from one disk to another, in that box's name. */
bool undertaker_duplicate(struct undertaker *u, const char *id, enum chore chore, int from, int to,
                          const struct duplicate_plan *plan);

/* What was written to a disk and is not on it yet goes there: a COPY that comes soon is quick. */
bool undertaker_settle(struct undertaker *u, const char *id, int disk);

/* Takes over the descriptors; false if it is too busy to: they stay, ask again later. */
bool undertaker_take(struct undertaker *u, const char *id, int held[HELD_SPACES]);

/* What it has done: buried a box, or a chore for it (or failed with -errno). */
struct undertaker_word {
    char id[ID_SIZE];       /* empty: nothing that anybody waits for */
    enum chore chore;       /* CHORE_NONE: buried */
    enum duplicate_way way; /* of a copy */
    int result;
};

/* The next word: 1, 0 none yet, -1 the undertaker is gone and so is what it held. */
int undertaker_next(struct undertaker *u, struct undertaker_word *ret);
