/* Internal state of volumes, shared by the files of src/service/volumes. */
#pragma once

#include "service/state.h"
#include "service/volumes/live.h"
#include "service/volumes/volumes.h"
#include "store/volumes/volumes.h"

_Static_assert((int)VOLUME_NAME_MAX + 1 == (int)STORE_VOLUME_NAME_SIZE, "each name fits");

enum { VOLUME_PATH_SIZE = PLACE_SIZE + 64 };

/*
 * A volume that is being made, copied or deleted. While a job exists, machines get neither its
 * volume nor its source, and no other job begins on them.
 */
struct volume_job {
    struct volume_job *next; /* in service_volumes.jobs */
    struct service *service;
    struct caller who;
    const char *verb;
    struct volume_row row;    /* the new volume, or the one to delete */
    struct volume_row source; /* a copy is made of it; id empty: of none */
    bool removes;
    bool written; /* the row of a new volume is in the store, or that of the old one is not */
    struct loop_timer *again; /* asks once more whether the source is mounted; NULL: not yet */
    unsigned tries;
    struct disk_hold hold;
    uint64_t intent;
    bool failed;
    struct err err;
    service_net_fn *done;
    void *arg;
};

/* Part of struct service. */
struct service_volumes {
    struct volume_job *jobs;
    struct volume_door *doors;
};

/* ---- volumes.c ---- */

/* Answers the volume as JSON, or the error if it does not exist. */
void volume_answer(struct service *s, const char *owner, const char *name, service_net_fn *done,
                   void *arg);

/* ---- doors.c ---- */

void volume_doors_free(struct service_volumes *v);
/* Ends the door of a volume that is to be copied or deleted. */
void volume_doors_shut(struct service *s, const char *id);
/* True: the machine of this grant is a door, which keeps no other machine from the volume. */
bool volume_use_is_door(const struct grant_row *row);

/* ---- jobs.c ---- */

/* Refuses a volume that a job uses. */
int volume_is_idle(const struct service *s, const char *id, const char *name, struct err *err);
/*
 * Writes the intent to the journal and begins the job `like`, whose fields who, verb, row, source,
 * removes, done and arg are set. On failure the caller answers.
 */
int volume_job_begin(struct service *s, const struct volume_job *like, struct err *err);

/* ---- files.c: directories of volumes. They block. ---- */

/* Writes the path of volumes/PREFIXid. */
void volume_path(const struct service *s, const char *prefix, const char *id,
                 char ret[VOLUME_PATH_SIZE]);
/* Copies the disk of a volume to that of the unfinished volume `to`. */
int volume_copy(const struct service *s, const char *from, const char *to, struct err *err);
/* Renames the directory of a volume, and syncs the new name. */
int volume_rename(const struct service *s, const char *id, const char *from, const char *to,
                  struct err *err);
/* Deletes a directory with this prefix. It may not exist. */
int volume_delete(const struct service *s, const char *prefix, const char *id, struct err *err);

/*
 * Prefixes of directories that are not finished. At the next start the row decides: if it exists,
 * the directory becomes a volume; if not, it is deleted. A directory without a prefix is never
 * deleted.
 */
#define VOLUME_NEW "new-"
#define VOLUME_OLD "old-"
