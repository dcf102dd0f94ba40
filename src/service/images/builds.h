/*
 * Builds of images: jobs of the daemon. A build follows a list of steps in a machine and keeps an
 * image after each step that changes files.
 *
 * The client translates a recipe or a Dockerfile into steps and uploads the files that they copy.
 * It may disconnect then: the build and its log continue. A build ends with the daemon.
 */
#pragma once

#include "service/images/images.h"
#include "service/schema.h"
#include "service/service.h"

enum {
    BUILDS_OWNER_MAX = 4, /* builds that have not ended */
    BUILDS_HOST_MAX = 16,
    BUILDS_KEPT_MAX = 32, /* ended builds that an owner can see */
    BUILD_STEPS_MAX = 512,
    BUILD_ARCHIVES_MAX = 256,
    BUILD_LOG_MAX = 4 << 20,          /* bytes of a log */
    BUILD_UPLOAD_MS = 10 * 60 * 1000, /* time between two parts of an upload */
};
#define BUILD_FILES_MAX (4ull << 30) /* bytes of files in all builds of an owner */

/* One step. Without `make` it is only shown: a setting, or the image that the build starts from. */
struct build_step {
    const char *what;  /* the text of the step, for logs */
    const char *place; /* where the step comes from, for errors: "line 3 of the recipe" */
    const char *how;   /* of a step that is only shown: "using", "setting" */
    bool make;
    bool fresh;        /* needs a machine of the image before this step */
    struct texts net;  /* hosts and presets that the machine may reach */
    struct texts dirs; /* directories to create first */
    /* a command */
    const char *command;
    struct texts argv, env;
    const char *user, *cwd;
    /* files to copy */
    struct given archive;        /* number of the uploaded archive */
    const char *to;              /* destination */
    bool into;                   /* the destination is a directory, also if it does not exist */
    bool as_file;                /* the destination is the path of the one file of the archive */
    const char *chown;           /* USER[:GROUP] */
    const char *key;             /* hash of the files, which the client computed */
    struct image_request config; /* configuration of the image after this step */
};

struct build_request {
    const char *base;
    const char *name; /* of the new image; NULL: none */
    bool no_cache;
    struct texts local; /* hosts of package mirrors that may have private addresses */
    struct rows steps;  /* struct build_step */
};
extern const struct schema build_request_schema, build_step_schema, build_config_schema;

struct build_view {
    const char *id, *owner, *name;
    const char *state; /* uploading, running, done, failed, cancelled */
    const char *what;  /* the present step */
    uint64_t step, steps, made, cached;
    uint64_t started_ms, ended_ms;
    const char *image;                 /* id of the result */
    const char *code, *error, *remedy; /* of a build that failed */
};

typedef void service_build_fn(void *arg, const struct build_view *view);

/*
 * Starts a build. It waits in state `uploading` until all archives of its steps have come.
 * net_allowed: carrel.conf allows every caller what the steps may reach.
 */
int service_build_start(struct service *s, const struct caller *who, json_t *recipe,
                        bool net_allowed, service_build_fn *done, void *arg, struct err *err);
int service_build_list(struct service *s, const struct caller *who, bool all_owners,
                       service_row_fn *row, void *arg, struct err *err);
int service_build_show(struct service *s, const struct caller *who, const char *id,
                       service_build_fn *done, void *arg, struct err *err);
/* Cancels a build; one that has ended stays as it is. It ends when its machine is gone. */
int service_build_cancel(struct service *s, const struct caller *who, const char *id,
                         service_build_fn *done, void *arg, struct err *err);

/* ---- upload of an archive (tar) ---- */

/*
 * Worker threads write the archive to the disk, one piece after the other. `ended` is called once,
 * unless the upload is cancelled; the upload is gone then.
 */
struct build_upload_events {
    void *arg;
    void (*room)(void *arg);                         /* build_upload_add() takes bytes again */
    void (*ended)(void *arg, const struct err *err); /* err NULL: the whole archive is stored */
};

struct build_upload;
struct build_upload *service_build_upload(struct service *s, const struct caller *who,
                                          const char *id, uint64_t number,
                                          const struct build_upload_events *events,
                                          struct err *err);
/*
 * Adds bytes. 1: no more should come before `room`. -1 with ERR_LIMIT: the files are too large;
 * with ERR_GONE: the build has ended. The caller then cancels the upload.
 */
int build_upload_add(struct build_upload *u, const void *bytes, size_t n, struct err *err);
/* No bytes follow. `ended` is called later, or before this function returns. */
void build_upload_finish(struct build_upload *u);
/* Discards the archive, so that it can be sent again. */
void build_upload_cancel(struct build_upload *u);

/*
 * Opens a file without a name on the disk of the store. It is for a front end that gets the files
 * of a build before it knows the steps. Returns a descriptor, which the caller owns, or -1.
 */
int service_build_spool(struct service *s, const struct caller *who, struct err *err);

/* ---- drafts ---- */

/*
 * What a front end keeps of a build that it has not started yet: a text of JSON, and files by their
 * names. They outlive the daemon. Without room for them the build goes on, and the log has a
 * warning. The front end chooses names without '.' and '/'.
 */
void service_draft_put(struct service *s, const char *name, const char *text, size_t n);
/* Keeps a file of service_build_spool(). */
void service_draft_add(struct service *s, const char *name, const char *file, int fd);
/* Opens a file that was kept. Returns a descriptor, which the caller owns, or -errno. */
int service_draft_open(struct service *s, const char *name, const char *file);
void service_draft_drop(struct service *s, const char *name);
/* Calls `came` for each draft. False: the draft is of no use, and is deleted. */
typedef bool service_draft_fn(void *arg, const char *name, const json_t *draft);
void service_drafts_load(struct service *s, service_draft_fn *came, void *arg);

/* ---- log ---- */

/*
 * A reader of a log, which is a file of JSON objects, one per line. `changed` is called when the
 * log grew or the build ended.
 */
struct build_log_reader {
    void (*changed)(void *arg);
    void *arg;
    int fd;     /* the log; owned by the reader */
    bool ended; /* the build has ended: the log does not grow */
    /* private to images/ */
    struct build_log_reader *next, **at;
};
int service_build_log(struct service *s, const struct caller *who, const char *id,
                      struct build_log_reader *reader, struct err *err);
/*
 * Writes a label of a front end into the log of a build that has just been started, as its first
 * line: {"type":"label","label":...}.
 */
int service_build_label(struct service *s, const struct caller *who, const char *id,
                        const json_t *label, struct err *err);
/* Call it before the reader is freed. */
void build_log_close(struct build_log_reader *reader);
