/*
 * Images: file trees that machines start from, with names.
 *
 * A tree is identified by its content (base/image_id.h) and stored once, whatever its names.
 * Deleting a name does not affect machines: the tree is deleted with its last name and last
 * machine. A process of the spawner reads and writes archives; this module only connects pipes.
 */
#pragma once

#include "service/service.h"

struct image_view {
    const char *id, *name, *owner, *origin;
    uint64_t created_ms, bytes, entries;
    uint64_t machines;  /* living ones that lie on it */
    const char *stored; /* "erofs": as a file that is mounted; "directory" */
    const char *config; /* JSON: env, user, workdir ... */
};

typedef void service_image_fn(void *arg, const struct image_view *view, const struct err *err);

int service_image_list(struct service *s, const struct caller *who, bool all_owners,
                       service_row_fn *row, void *arg, struct err *err);
int service_image_show(struct service *s, const struct caller *who, const char *ref,
                       service_image_fn *done, void *arg, struct err *err);
/* The name; the tree stays as long as machines need it. */
void service_image_remove(struct service *s, const struct caller *who, const char *ref,
                          service_image_fn *done, void *arg);
/* One more name for it. */
void service_image_tag(struct service *s, const struct caller *who, const char *ref,
                       const char *name, service_image_fn *done, void *arg);
/* Deletes names of intermediate images of builds (`build:...`) that no machine uses. */
int service_image_prune(struct service *s, const struct caller *who, uint64_t *ret_count,
                        uint64_t *ret_bytes, struct err *err);

/* What there is, and what was done since the daemon began. */
enum image_work { IMAGE_IMPORT, IMAGE_EXPORT, IMAGE_SNAP, IMAGE_WORKS };
struct image_stats {
    uint64_t names, trees, bytes;
    uint64_t made[IMAGE_WORKS], failed[IMAGE_WORKS];
    uint64_t steps_made, steps_cached; /* of builds */
};
const char *image_work_name(enum image_work work);
void service_image_stats(struct service *s, struct image_stats *ret);

/* ---- archives ---- */

struct image_job;

/* An archive on its way. `ended` comes once, unless the job is cancelled. */
struct image_events {
    void *arg;
    void (*room)(void *arg);                                  /* in: more may be fed */
    void (*data)(void *arg, const void *bytes, size_t count); /* out */
    service_image_fn *ended;                                  /* view NULL for what goes out */
};

/* name NULL: as its id begins. NULL with *err. */
struct image_job *service_image_import(struct service *s, const struct caller *who,
                                       const char *name, const struct image_events *events,
                                       struct err *err);
/* How many bytes were taken; last: nothing follows, once all of these are. */
size_t image_feed(struct image_job *job, const void *bytes, size_t count, bool last);

/* form: tar, tar.zst, oci. */
struct image_job *service_image_export(struct service *s, const struct caller *who, const char *ref,
                                       const char *form, const struct image_events *events,
                                       struct err *err);
void image_hold(struct image_job *job, bool held); /* no data for now */

/* Nobody waits for it any more; what was begun is taken back. */
void image_cancel(struct image_job *job);

/* What a machine is becomes an image; nothing may run in it. */
struct image_request {
    const char *name;
    const char *step; /* NULL: as it is now */
    struct texts env; /* pairs, over those of the image below it */
    const char *user, *workdir;
    struct texts command;
};
void service_image_snap(struct service *s, const struct caller *who, const char *machine,
                        const struct image_request *r, service_image_fn *done, void *arg);
