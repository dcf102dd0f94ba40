/* Internal state of backups, shared by the files of src/service/backups. */
#pragma once

#include "base/buf.h"
#include "base/sha256.h"
#include "base/tar.h"
#include "packs/manifest.h"
#include "packs/packfile.h"
#include "service/backups/backups.h"
#include "service/backups/live.h"
#include "service/state.h"
#include "service/steps/live.h"
#include "store/backups/backups.h"

_Static_assert((int)BACKUPS_MAX < (int)STORE_PAGE_MAX, "a list has all of them");

enum {
    BACKUP_RECORD_MAX = 1 << 30, /* as in image/known.h, which the daemon does not link */
    BACKUP_JOBS_MAX = 8,
    BACKUP_FORM = 1,           /* of the description of a copy */
    BACKUP_TEXT_MAX = 8 << 20, /* bytes of it: it lists all packs */
    BACKUP_PATH_SIZE = PLACE_SIZE + 64,
};

/* An operation on the backups of one machine. There is one at a time for each machine. */
struct backup_job {
    struct backup_job *next; /* in service_backups.jobs */
    struct service *service;
    struct caller who;
    const char *verb;
    uint64_t intent;
    char machine[ID_SIZE];
    bool failed, cancelled;
    struct err err;
};

struct service_backups {
    struct backup_job *jobs;
};

/* ---- backups.c ---- */

/* Registers a job and writes its intent to the journal. ERR_BUSY: another one is running. */
int backup_job_begin(struct backup_job *j, const char *detail, struct err *err);
/* Writes the result to the journal, and forgets the job. */
void backup_job_over(struct backup_job *j, const char *detail);
void backup_job_fail(struct backup_job *j, const struct err *err);
int backup_find(struct service *s, const struct caller *who, const char *id, struct backup_row *ret,
                struct err *err);
void backup_put(struct jot *j, const struct backup_row *row);

/* ---- files.c: all of it blocks ---- */

/* Names of files in the directory of a machine, after the id of a backup. */
#define BACKUP_MANIFEST ".manifest"
#define BACKUP_KNOWN ".known" /* the record for the next backup (image/known.h) */
#define BACKUP_UNFINISHED ".new"

/* In an exported backup: the folder of its description, and the version of that. */
#define BACKUP_TEXTS "backups/"

/* In the details of a backup without the host's /usr: image_host_state() at that time. */
#define BACKUP_HOST "host"

void backup_dir_path(const struct service *s, const char *machine, char ret[BACKUP_PATH_SIZE]);
/* Opens the directory of a machine, or that of its packs. Returns -1 with *err. */
int backup_dir_open(const struct service *s, const char *machine, struct err *err);
int backup_packs_open(int dir, struct err *err);
int backup_dir_make(const struct service *s, const char *machine, struct err *err);
/* Reads a manifest and compares it with its hash. *text must outlive *ret. */
int backup_manifest(int dir, const struct backup_row *row, struct buf *text, struct manifest *ret,
                    struct err *err);
/* Opens a pack of a manifest. name: gets its hash as a text. -1 with *err. */
int backup_pack_open(int packs, const struct manifest *m, uint32_t i, char ret_name[SHA256_HEX],
                     struct err *err);
/* Compares a pack with its hash, and adds its size to *bytes. */
int backup_pack_check(int packs, const struct manifest *m, uint32_t i, uint64_t *bytes,
                      struct err *err);
/* 0 if all packs of a manifest exist. */
int backup_packs_exist(int packs, const struct manifest *m, struct err *err);
/*
 * Deletes all files of a machine that none of these backups needs. If the manifest of one of them
 * cannot be read, all packs stay.
 */
int backup_clean(const struct service *s, const char *machine, const struct backup_list *keep,
                 struct err *err);

/* ---- archive.c: all of it blocks ---- */

struct backup_archive {
    int dir, packs;
    char name[SHA256_HEX]; /* of the manifest */
    struct buf text;       /* the manifest */
    struct manifest manifest;
    bool *skip;                   /* packs that are left out; NULL: none */
    const char *last, *last_name; /* after the packs come the manifest and this text; or NULL */
    struct buf out;               /* bytes that nobody has taken */
    bool at_end;                  /* `out` has the last of them */
    uint32_t at;                  /* the next pack */
    int fd;                       /* the pack that is being read; -1: none */
    uint64_t size, left;          /* of that pack */
};
#define BACKUP_ARCHIVE                                                   \
    (struct backup_archive) {                                            \
        .dir = -1, .packs = -1, .fd = -1, .text = BUF(MANIFEST_MAX + 1), \
        .out = BUF(MANIFEST_MAX + (4 << 20))                             \
    }

/* Opens the files of a backup, which must all exist. */
int backup_archive_open(struct backup_archive *a, const struct service *s,
                        const struct backup_row *row, struct err *err);
int backup_archive_text(struct backup_archive *a, const char *name, const void *text, size_t n,
                        struct err *err);
int backup_archive_manifest(struct backup_archive *a, struct err *err);
/* Adds about a mebibyte to a->out. */
int backup_archive_read(struct backup_archive *a, struct err *err);
void backup_archive_done(struct backup_archive *a);

/* ---- intake.c: the stream of carrel-image becomes files. All of it blocks. ---- */

struct backup_intake {
    int dir, packs;
    bool is_copy;     /* of another daemon: it has a description, and no record */
    struct buf text;  /* the description */
    uint32_t files;   /* in the stream */
    char id[ID_SIZE]; /* of the backup */
    struct tar_reader tar;
    uint8_t block[TAR_BLOCK];
    size_t block_len;
    int fd; /* the file that is being written; -1: none, or the description */
    struct sha256 sum;
    char hash[SHA256_HEX];   /* that the file must have; empty: any */
    bool is_pack;            /* the file is a pack, else it belongs to this backup */
    char name[ID_SIZE + 16]; /* of the file, unless it is a pack */
    uint64_t left;
    uint32_t padding;
    char manifest[SHA256_HEX];
    bool has_record, ended;
    uint64_t written, most; /* bytes; most 0: no limit */
};

/* Marks a backup as not complete, and ends that. The files of a complete one are synced before. */
int backup_mark(int dir, const char *id, struct err *err);
void backup_unmark(int dir, const char *id);
int backup_sync(const struct backup_intake *in, struct err *err);
int backup_intake_feed(struct backup_intake *in, const uint8_t *bytes, size_t n, struct err *err);
void backup_intake_done(struct backup_intake *in);
