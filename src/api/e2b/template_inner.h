/* A build that a client asked for, shared by the files of src/api/e2b. */
#pragma once

#include "api/e2b/templates.h"
#include "service/images/builds.h"

enum {
    BUILDS_WAITING_MAX = 8, /* builds of an owner that were asked for and are not started */
    BUILDS_SHOWN_MAX = 32,  /* ended ones of an owner, of which the oldest are forgotten */
    BUILD_WAIT_MS = 60 * 60 * 1000,
    TAGS_MAX = 16,
    FILES_MAX = BUILD_ARCHIVES_MAX,
    UPLOAD_ID_SIZE = 33,
    LOG_ENTRIES_MAX = 10000,
    LOG_BYTES_MAX = 512 << 10,
};

enum template_state { TEMPLATE_WAITING, TEMPLATE_BUILDING, TEMPLATE_READY, TEMPLATE_ERROR };

/* What a client packed for COPY steps. */
struct template_file {
    struct template_file *next;
    char hash[TEMPLATE_HASH_SIZE];
    char upload[UPLOAD_ID_SIZE]; /* unguessable: who knows it may send the files */
    int fd;                      /* -1: nothing was sent yet */
    uint64_t size;
};

struct template_entry {
    uint64_t ms;
    char step[TEMPLATE_STEP_SIZE];
    bool is_error;
    char *text;
};

struct template_log {
    struct template_entry *entries;
    size_t count;
    size_t bytes;
    bool cut;
    struct buf line; /* output that has no end of line yet */
    char step[TEMPLATE_STEP_SIZE];
    uint64_t at_ms; /* time of all entries; 0: of each the time when it came */
};

struct template_build {
    struct template_build *next;
    struct e2b_templates *of; /* NULL: the interface has ended */
    unsigned refs;            /* of the list, of a job, and of uploads by the client */
    struct caller who;
    char id[TEMPLATE_UUID_SIZE];
    char name[TEMPLATE_NAME_SIZE];
    char tags[TAGS_MAX][TEMPLATE_NAME_SIZE];
    size_t tag_count, tagged;
    uint64_t cpus, mem_mb;
    uint64_t asked_ms, ended_ms;
    enum template_state state;
    char *reason, reason_step[TEMPLATE_STEP_SIZE];
    struct template_file *files;
    uint64_t arriving; /* bytes of uploads that have not ended */
    struct template_plan plan;
    int archives[TEMPLATE_STEPS_MAX]; /* of the copies of the plan, as the build takes them */
    bool prepare_failed;              /* by the worker, with the next two */
    struct err prepared;
    char prepared_step[TEMPLATE_STEP_SIZE];
    /* while the service builds */
    char build[ID_SIZE];
    bool labelled; /* the next daemon finds it by its label; until then by its draft */
    char image[IMAGE_ID_SIZE];
    struct build_log_reader reader;
    uint64_t read_at; /* in the log of the service */
    struct buf rest;  /* a line of it that is not complete */
    struct template_log log;
    struct build_upload *upload; /* of archive `archive`, up to `sent` */
    size_t archive;
    uint64_t sent;
};

struct e2b_templates {
    struct loop *loop;
    struct service *service;
    struct template_build *builds; /* the newest first */
};

struct template_build *template_build_ref(struct template_build *b);
void template_build_unref(struct template_build *b);
/* The build that the two parameters of the path name, or NULL. */
struct template_build *template_build_of(struct e2b_call *c, struct err *err);
/* Ends a build that has not ended. */
void template_build_fail(struct template_build *b, const char *step, const struct err *err);

/* A build of nobody yet: the caller adds it to the list. */
struct template_build *template_build_new(struct e2b_templates *t, const struct caller *who);
/* The service says how the build ended. */
void template_build_came(void *arg, const struct build_view *view);

/* ---- restore.c ---- */

/* Labels the build that the service has begun, so that another daemon finds it. */
int template_label(struct template_build *b, struct err *err);
/* Finds the build that the parameters of the path name among those of earlier daemons. */
struct template_build *template_restore(struct e2b_call *c, const char *name);
/* Writes down a build that the service does not know, so that the next daemon knows it. */
void template_draft_keep(struct template_build *b);
void template_drafts_load(struct e2b_templates *t);

/* ---- files.c ---- */

void template_files_free(struct template_build *b);
/* NULL: no such files were announced. */
struct template_file *template_file_find(const struct template_build *b, const char *hash);

/* ---- log.c ---- */

void template_log_done(struct template_log *l);
void template_log_add(struct template_log *l, const char *step, bool is_error, const char *text,
                      size_t n);
/* Writes the last lines that a step printed, each with a line feed before it. */
void template_log_tail(const struct template_log *l, const char *step, struct buf *ret);
/* Reads what is new in the log of the service. */
void template_log_read(struct template_build *b);
