/* A build in progress, and the functions that the build_*.c files share. */
#pragma once

#include "base/sha256.h"
#include "base/wire/outlog.h"
#include "service/exec/exec.h"
#include "service/images/builds.h"
#include "service/images/inner.h"
#include "store/builds.h"

enum { BUILD_TAIL = 64 << 10, BUILD_PATH_SIZE = 4096, BUILD_NAME_SIZE = 256 };

struct build;
struct tool_run;
typedef void build_then_fn(struct build *b);

/* An archive with the files of a step, as it was uploaded. */
struct build_archive {
    int fd; /* a file without a name; -1: not uploaded yet */
    uint64_t size;
    bool whole, coming;
};

/* The copy that a step makes. */
struct build_copying {
    char dir[BUILD_PATH_SIZE];  /* directory that files are unpacked in */
    char name[BUILD_NAME_SIZE]; /* name of a single file; empty: files keep their names */
    bool exists;                /* the directory exists */
    uint32_t uid, gid;          /* owner of the files, if the step has one */
    bool reads_group;
    struct buf text; /* passwd or group of the machine */
    struct tool_run *tool;
    const struct build_archive *from;
    build_then_fn *then; /* after the copy */
    uint64_t at;         /* next byte of the archive */
    struct buf head;     /* changed header, which is sent first */
    size_t head_at;
    char path[2 * BUILD_PATH_SIZE]; /* file that gets its owner */
};

struct build {
    struct build *next; /* in service_images.builds */
    struct service *service;
    struct caller who;
    uint64_t intent;
    struct build_row row;
    json_t *recipe; /* owns the texts of the request */
    struct build_request request;
    struct build_archive *archives;
    size_t archive_count;
    struct loop_timer *timer; /* ends an upload that does not go on; later keeps a step again */
    struct sha256 key;        /* hash of all steps so far */
    char step_name[IMAGE_NAME_SIZE];
    char image[IMAGE_ID_SIZE]; /* image that the next step starts from; "host": the host's */
    char machine[ID_SIZE];     /* machine that runs the steps; empty: none */
    char made_of[IMAGE_ID_SIZE];
    const struct texts *net; /* what the machine may reach */
    size_t at, dir_at, rule_at;
    json_t *rules; /* network rules of the machine */
    /* The function that continues the build. One operation is in progress at a time. */
    build_then_fn *then;
    struct loop_call call;
    struct exec *exec;
    struct exec_request exec_request;
    struct exec_follower follower;
    struct outlog_cursor cursor;
    uint64_t read_to[2];      /* offset in each stream up to which output is read */
    bool exec_over;           /* the command has ended and read_to is final */
    struct loop_call reading; /* reads more output later */
    struct image_snap *snap;
    struct build_copying copying;
    int log;
    uint64_t log_bytes, unlogged;
    struct buf tail; /* end of the output that did not fit into the log; BUILD_TAIL or more */
    struct build_log_reader *readers;
    bool net_allowed; /* see service_build_start() */
    bool cancelled, released;
    bool ending; /* its machine is being deleted */
    bool busy;   /* an operation is in progress: its callback continues the build */
    struct err failed;
    bool has_failed;
};

const struct build_step *build_step_of(const struct build *b);

/* ---- build.c ---- */

/* Finds a build that the caller may see. */
int build_find(struct service *s, const struct caller *who, const char *id, struct build_row *ret,
               struct err *err);

/* Continues with `then` after the present callback. */
void build_go(struct build *b, build_then_fn *then);
/* Before an operation whose callback calls build_did(). */
void build_begin(struct build *b, build_then_fn *then);
/* The operation has ended. err NULL: continues with the function of build_begin(). */
void build_did(struct build *b, const struct err *err);
/* Ends the build with an error, which gets the place of the step. */
void build_fail(struct build *b, const struct err *err);
void build_finish(struct build *b); /* all steps are done */
/* All files of the build have come: it starts. */
void build_uploaded(struct build *b);
/* NULL: the build has ended. */
struct build *build_live(struct service *s, const char *id);

/* ---- build_steps.c ---- */

void build_start_steps(struct build *b);
void build_exec_release(struct build *b);

/* ---- build_copy.c ---- */

void build_copy_step(struct build *b, build_then_fn *then);
void build_copying_done(struct build_copying *c);

/* ---- build_log.c ---- */

int build_log_create(struct build *b, struct err *err);
void build_log_step(struct build *b, const char *how, const char *what);
void build_log_output(struct build *b, const void *bytes, size_t n);
/* Writes the end of the output of a step that failed, if the log was full. */
void build_log_tail(struct build *b);
void build_log_changed(struct build *b);
void build_log_delete(const struct service *s, const char *id);
/* Deletes logs of builds that have no row. */
void build_logs_sweep(struct service *s);
