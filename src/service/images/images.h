/*
 * Images: file trees that machines start from, with names.
 *
 * A tree is identified by its content (base/image_id.h) and stored once, whatever its names. It may
 * be a layer above another image (base/image_below.h). Deleting a name does not affect machines:
 * the tree is deleted with its last name, last machine and last image above it. A process of the
 * spawner reads and writes archives; this module only connects pipes.
 */
#pragma once

#include "service/service.h"

struct image_view {
    const char *id, *name, *owner, *origin;
    uint64_t created_ms, bytes, entries;
    uint64_t machines;  /* number of live machines of its owner that use the image */
    const char *stored; /* "erofs" (a mounted file) or "directory" */
    uint64_t layers;    /* its own and those of the images below it */
    const char *config; /* JSON: env, user, workdir ... */
};

typedef void service_image_fn(void *arg, const struct image_view *view, const struct err *err);

int service_image_list(struct service *s, const struct caller *who, bool all_owners,
                       service_row_fn *row, void *arg, struct err *err);
int service_image_show(struct service *s, const struct caller *who, const char *ref,
                       service_image_fn *done, void *arg, struct err *err);
/* Deletes a name of an image; the file tree stays while machines use it. */
void service_image_remove(struct service *s, const struct caller *who, const char *ref,
                          service_image_fn *done, void *arg);
/* Adds a name to an image. */
void service_image_tag(struct service *s, const struct caller *who, const char *ref,
                       const char *name, service_image_fn *done, void *arg);
/* Deletes names of intermediate images of builds (`build:...`) that no machine of the owner uses.
 */
int service_image_prune(struct service *s, const struct caller *who, uint64_t *ret_count,
                        uint64_t *ret_bytes, struct err *err);

/* Counters of images that exist, and of work since the start of the daemon. */
enum image_work { IMAGE_IMPORT, IMAGE_EXPORT, IMAGE_SNAP, IMAGE_WORKS };
struct image_stats {
    uint64_t names, trees, bytes;
    uint64_t made[IMAGE_WORKS], failed[IMAGE_WORKS];
    uint64_t steps_made, steps_cached; /* intermediate images of builds */
};
const char *image_work_name(enum image_work work);
void service_image_stats(struct service *s, struct image_stats *ret);

/* ---- archives ---- */

struct image_job;

/*
 * Imports, exports and snapshots at the same time. Each one has up to three processes and may read
 * or write a whole image. One more is refused with ERR_BUSY.
 */
enum { IMAGE_JOBS_OWNER_MAX = 8, IMAGE_JOBS_HOST_MAX = 32 };

/*
 * Callbacks of the import or export of an image archive. `ended` is called once, unless the job is
 * cancelled.
 */
struct image_events {
    void *arg;
    void (*room)(void *arg); /* import: image_feed() takes data again */
    void (*data)(void *arg, const void *bytes, size_t count); /* export: data of the archive */
    service_image_fn *ended;                                  /* `view` is NULL for an export */
};

/*
 * Starts the import of an image archive, or returns NULL with *err. name NULL: the start of the id
 * is the name.
 */
enum image_above {
    IMAGE_ABOVE_NOTHING,
    IMAGE_ABOVE_LAYERS, /* the archive is in the order that keeps its layers (images/layered.h) */
    IMAGE_ABOVE_HOST,   /* its /usr has only what differs from the host's */
};
struct image_job *service_image_import(struct service *s, const struct caller *who,
                                       const char *name, enum image_above above,
                                       const struct image_events *events, struct err *err);
/*
 * Passes bytes of the archive to an import. Returns the number of bytes taken. last: no bytes
 * follow after these.
 */
size_t image_feed(struct image_job *job, const void *bytes, size_t count, bool last);

/*
 * Returns how many of the lowest layers of an image are stored for the owner. An import of layers
 * need not send these. digests: of all layers of the image, lowest first.
 */
int service_image_layers(struct service *s, const struct caller *who, const struct texts *digests,
                         uint64_t *ret, struct err *err);

/* Starts the export of an image as an archive. form: tar, tar.zst or oci. */
struct image_job *service_image_export(struct service *s, const struct caller *who, const char *ref,
                                       const char *form, const struct image_events *events,
                                       struct err *err);
void image_hold(struct image_job *job, bool held); /* pauses or continues an export */

/* Cancels the job and deletes what it created. */
void image_cancel(struct image_job *job);

/* Creates an image from a machine in which no command runs. */
struct image_request {
    const char *name;
    const char *step; /* step (snapshot) of the machine; NULL: its present state */
    struct texts env; /* names and values of variables, added to those of the machine's image */
    const char *user, *workdir;
    struct texts command, entrypoint; /* either one replaces both of the machine's image */
};
struct image_snap;
/*
 * *handle is set while the snapshot can be cancelled, and NULL before `done` is called. It must
 * stay valid until then, or until image_snap_cancel().
 */
void service_image_snap(struct service *s, const struct caller *who, const char *machine,
                        const struct image_request *r, service_image_fn *done, void *arg,
                        struct image_snap **handle);
/*
 * Cancels the snapshot and deletes what it created; `done` is not called. An image that is already
 * complete stays.
 */
void image_snap_cancel(struct image_snap *p);
