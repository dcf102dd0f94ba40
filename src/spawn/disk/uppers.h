/*
 * Uppers: directories in the store that hold the changes of boxes, each limited by a project quota.
 * A rootless spawner without another place has uppers without a limit, and reports it.
 *
 * The name uppers/RUN/PROJECT identifies the quota to clear. Every entry belongs to one box or one
 * pooled root, or is garbage. Files have the ids that the box chose, including setuid files, so
 * only root may enter the directory. Garbage is hostile in names, depth and number: removal never
 * recurses and works in small steps.
 */
#pragma once

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct uppers {
    int dir;      /* uppers/RUN; -1: none */
    bool limited; /* quotas are enforced here */
    bool bare;    /* plain directories: names are numbers, not projects */
    int store;
    char run[16];
    int trash;     /* uppers/RUN/trash: directories that are being deleted */
    bool pending;  /* it may have entries */
    bool progress; /* since the listing was started */
    DIR *listing;
    DIR *emptying;
    char name[24]; /* name of the directory being emptied */
    uint64_t next; /* next name in trash */
};

/* Empty; valid for uppers_close(). */
#define UPPERS_NONE ((struct uppers){.dir = -1, .trash = -1, .store = -1})

/*
 * Probes whether the store's filesystem enforces a project quota on us. run: name of the run
 * directory, since several may share a store.
 */
void uppers_open(struct uppers *u, int store, const char *run);

/* The same without limits. */
void uppers_open_bare(struct uppers *u, int store, const char *run);

/*
 * A new directory with a limit; descriptor or -1. Its project is one of the 65,536 from `first` on,
 * which only the caller may use on this host.
 */
int uppers_new(struct uppers *u, uint32_t first, uint64_t bytes, uint64_t inodes,
               uint32_t *ret_project, struct err *err);

/* The box is gone: moves the directory away now, deletes it later. 0: none. */
void uppers_bury(struct uppers *u, uint32_t project);

/* After a crash: deletes those that in_use does not know. */
void uppers_sweep(struct uppers *u, bool (*in_use)(uint32_t project, void *arg), void *arg);

/* One step of deleting, about a millisecond; false: nothing to do. */
bool uppers_step(struct uppers *u);

/* Deletes for at most five seconds; the next spawner does the rest. */
void uppers_close(struct uppers *u);
