/* A job that makes or reads an image, and the functions that jobs.c and snap.c share. */
#pragma once

#include "service/images/inner.h"
#include "service/steps/live.h"

/* The report of one worker. */
struct hearing {
    struct image_job *job;
    int fd; /* the daemon's end of the pipe; -1: not open */
    struct loop_watch *watch;
    struct buf text;
    json_t *last; /* the last message, which is the outcome; or NULL */
};

struct image_job {
    struct image_job *next; /* in service_images.jobs */
    struct service *service;
    struct caller who;
    struct image_events events;
    enum image_work work;
    const char *verb;
    uint64_t intent;
    uint64_t told_ms;     /* time of the last progress event, or of the start */
    struct image_row row; /* the image to create */
    char staging[ID_SIZE];
    int archive; /* the daemon's end of the archive's pipe; -1: closed */
    struct loop_watch *archive_watch;
    int worker_fds[2]; /* the worker's ends of the pipes, until it has them */
    struct hearing unpacked, drawn;
    unsigned asking; /* requests that the spawner has not answered */
    bool cancelled, over, had_data;
    struct err failed;
    bool has_failed;
    struct live *live;             /* machine that the image is made from, or NULL */
    char *stack;                   /* its layers; a merge changes this list */
    struct layers_hold reads;      /* the same list as the worker got it */
    struct image_below below;      /* images below the new one: they are not deleted meanwhile */
    size_t draw_layers;            /* layers of `stack` that differ from the topmost of them */
    char adopting[IMAGE_ID_SIZE];  /* the new image, from before its tree has this name until it has
                                      a row in the database; it is not deleted meanwhile */
    int merged;                    /* the files of the machine, if the image is a layer; -1: none */
    struct image_layered *layered; /* an import of several layers, or NULL */
    bool lent;                     /* the image is to use the host's /usr */
    bool unverified;               /* its layer must not become an image yet */
    char layer[72];                /* digest of the layer that is being imported; empty: none */
    struct loop_call later;
    struct disk_hold hold; /* disk quota that is reserved while the tree is made */
};

/* ---- jobs.c ---- */

void image_job_free(struct image_job *j);
/* Ends the job with this error, once the workers are gone. */
void image_job_fail(struct image_job *j, const struct err *err);
int image_hearing_open(struct image_job *j, struct hearing *h, struct err *err);
/* NULL with ERR_BUSY: too many jobs run. */
struct image_job *image_job_new(struct service *s, const struct caller *who, enum image_work work,
                                const struct image_events *events, struct err *err);
/* A machine_done_fn: the spawner's answer to the request for a worker. */
void image_job_begun(void *arg, const struct err *err);
int image_job_fill_row(struct image_job *j, const char *name, const char *origin, struct err *err);
int image_job_begin_unpack(struct image_job *j, struct err *err);
/* The same without quota and journal, for each layer of an import. j->staging is a new name. */
int image_job_start_worker(struct image_job *j, struct err *err);
void image_job_close_archive(struct image_job *j);
/* Forgets the worker that has ended, so that the job can start another one. */
void image_job_reset(struct image_job *j);
/* Ends a job whose workers are gone. err NULL: j->row is the new image. */
void image_job_finish(struct image_job *j, const struct err *err);

/* ---- adopt.c ---- */

/* The workers have reported success: makes an image of the tree, then finishes the job. */
void image_job_adopt(struct image_job *j);

/* ---- below.c ---- */

/* Chooses the image that an image of j->stack is a layer above; none for a machine on `host`. */
int image_job_choose_base(struct image_job *j, struct err *err);
/* Remembers the new image as the one that the next image of the same machine may be above. */
void image_job_remember(struct image_job *j);
