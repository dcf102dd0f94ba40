/*
 * Change sets: work of a machine, frozen for review.
 *
 * A directory (default /outbox) is packed into an archive on the host, which never changes again.
 * If the directory was granted, the change set includes a baseline of the original
 * (base/fs/baseline.h), so that `ship` can refuse files that the owner changed meanwhile. With
 * changes_only, the archive has only what the machine changed, and the baseline only those paths. A
 * granted database is frozen as one file with its diff. A change set outlives its machine and its
 * grant.
 *
 * The owner reviews the change set and ships files with `carrel ship`, with the owner's own rights.
 * The journal has a record before and one after shipping, with the hash of the list of files.
 */
#pragma once

#include "base/sha256.h"
#include "service/net/net.h"
#include "service/service.h"

enum { CHANGESET_BYTES_MAX = 1 << 30 };

struct changeset_view {
    const char *id, *owner, *machine, *path;
    const char *machine_name;        /* name given by the owner, or NULL */
    const char *slice;               /* path in the machine of the grant that was changed */
    const char *grant, *kind, *home; /* kind: dir, repo, sqlite, postgres; NULL: no grant */
    const char *ref;                 /* the cloned ref of a repository, or NULL */
    const char *base_sha256;         /* hash of the granted copy of a database, or NULL */
    const char *sha256;              /* hash of the archive */
    const char *tainted;             /* untrusted source that the machine had read; NULL: none */
    const char *image_files;         /* JSON: paths that are unchanged since the image; or NULL */
    uint64_t bytes, created_ms, machine_ms; /* machine_ms: when the machine was created */
    const char *state;   /* pending, returned, shipped, ...; NULL: not looked up */
    const char *instead; /* superseded: by this change set; else NULL */
    bool revoked;        /* the grant was revoked since */
    bool changes_only;   /* the archive has only what the machine changed */
};

typedef void service_changeset_fn(void *arg, const struct changeset_view *view,
                                  const struct err *err);

struct freeze_request {
    const char *path;  /* path in the machine to freeze; NULL: /outbox */
    const char *slice; /* path in the machine of the grant that it changes; NULL: the same path */
    bool changes_only; /* of a granted directory, freeze only what the machine changed */
};
/* Records that the work of a machine of `owner` was returned to its run with a comment. */
int service_review_returned(struct service *s, const struct caller *who, const char *owner,
                            const char *machine, const char *run, struct err *err);

void service_freeze(struct service *s, const struct caller *who, const char *machine,
                    const struct freeze_request *r, service_changeset_fn *done, void *arg);

/* Which change sets to list. NULL: pending and returned ones; all machines; the newest. */
struct changesets_request {
    const char *states; /* names separated by commas, or `all` */
    const char *machine, *cursor;
    bool all_owners; /* requires RIGHT_LIST_ALL */
    uint64_t limit;
};
/* Takes one change set of a list. False: there is no room for it. */
typedef bool service_set_fn(void *arg, const struct changeset_view *view);
/* Lists change sets, newest first. ret_next: cursor of the next page, or empty. */
int service_changesets(struct service *s, const struct caller *who,
                       const struct changesets_request *r, service_set_fn *fn, void *arg,
                       char ret_next[CURSOR_SIZE], struct err *err);

/* Change sets that were deleted. */
struct changeset_dropped {
    char id[ID_SIZE], machine[ID_SIZE], owner[STORE_NAME_SIZE];
};
struct changesets_dropped {
    struct changeset_dropped *rows;
    size_t count;
};
enum { CHANGESETS_DROPPED_MAX = 1000 };
/*
 * Deletes change sets that were frozen before that time, at most CHANGESETS_DROPPED_MAX a call, and
 * adds them to the list. It blocks: call it on a worker.
 */
void changesets_trim(const char *home, int64_t before_ms, struct changesets_dropped *ret);

/* Receives a change set. fd: its archive; the receiver closes fd. The view is valid only during the
 * call. */
typedef void service_archive_fn(void *arg, const struct changeset_view *view, int fd,
                                const struct err *err);
void service_changeset_open(struct service *s, const struct caller *who, const char *id,
                            service_archive_fn *done, void *arg);
/* Like service_changeset_open(), but fd is the baseline of the original files: an empty file if no
 * baseline exists. If the change set has only changes, the baseline has only the changed paths. */
void service_changeset_base(struct service *s, const struct caller *who, const char *id,
                            service_archive_fn *done, void *arg);

/* Returns the diff that service_grant_diff() made when the database was frozen. */
void service_changeset_database(struct service *s, const struct caller *who, const char *id,
                                service_net_fn *done, void *arg);

/* A journal record before or after shipping, or before or after an undo. Requires RIGHT_SHIP. */
struct ship_request {
    const char *action; /* ship, shipped, undo, undone */
    const char *target; /* destination, as text for the journal */
    const char *sha256; /* hash of the list of shipped paths and their hashes */
    struct given files;
    struct given intent; /* shipped and undone: the record that ship or undo returned */
    const char *now;     /* shipped and undone: baseline lines of the files, or NULL */
};
struct ship_view {
    const char *changeset, *sha256;
    uint64_t record; /* number of the journal record */
};
typedef void service_ship_fn(void *arg, const struct ship_view *view, const struct err *err);
/* Writes the journal record. Calls `done` when the record is on disk. */
void service_ship(struct service *s, const struct caller *who, const char *id,
                  const struct ship_request *r, service_ship_fn *done, void *arg);
