/*
 * Uppers: directories in the store that hold the changes of boxes, each limited by a project quota.
 * A rootless spawner that cannot use a tmpfs has uppers without a limit, and reports that.
 *
 * The name uppers/RUN/PROJECT contains the project id, whose quota is cleared on deletion. Every
 * directory belongs to one box or one prepared root, or is unused and will be deleted. Files have
 * the ids that the box chose, and may be setuid, so only root may enter the directory. A box chose
 * names, depth and number of its files, so removal never recurses and works in small steps.
 */
#pragma once

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct uppers {
    int dir;      /* descriptor of uppers/RUN; -1: not open */
    bool limited; /* the store's filesystem enforces quotas */
    bool bare;    /* directories without quota: their names are plain numbers */
    int store;
    char run[16];
    int trash;     /* descriptor of uppers/RUN/trash, with the directories that are being deleted */
    bool pending;  /* the trash may have entries */
    bool progress; /* something was deleted since the listing was started */
    DIR *listing;
    DIR *emptying;
    char name[24]; /* name of the directory being emptied */
    uint64_t next; /* next name in the trash directory */
};

/* Value of a struct uppers that is not open; uppers_close() may be called for it. */
#define UPPERS_NONE ((struct uppers){.dir = -1, .trash = -1, .store = -1})

/*
 * Opens the directory of uppers, and tests whether the store's filesystem enforces project quotas.
 * run: name of the run directory, since several spawners may share a store.
 */
void uppers_open(struct uppers *u, int store, const char *run);

/* Opens the directory of uppers without limits. */
void uppers_open_bare(struct uppers *u, int store, const char *run);

/*
 * Creates a directory with a limit; returns its descriptor or -1. Its project is one of the 65,536
 * ids from `first` on, which only the caller may use on this host.
 */
int uppers_new(struct uppers *u, uint32_t first, uint64_t bytes, uint64_t inodes,
               uint32_t *ret_project, struct err *err);

/*
 * Call it when the box is gone: moves its directory to the trash, to be deleted later. project 0:
 * the box has no directory.
 */
void uppers_bury(struct uppers *u, uint32_t project);

/* After a crash: deletes the directories for which in_use() returns false. */
void uppers_sweep(struct uppers *u, bool (*in_use)(uint32_t project, void *arg), void *arg);

/* Deletes files of the trash for about a millisecond. False: the trash is empty. */
bool uppers_step(struct uppers *u);

/* Empties the trash for at most five seconds, then closes *u. The next spawner deletes the rest. */
void uppers_close(struct uppers *u);
