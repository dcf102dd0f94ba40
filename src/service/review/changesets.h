/*
 * Change sets: work of a machine, frozen for review.
 *
 * A directory (default /outbox) is packed into an archive on the host that never changes again. If
 * it was granted, the baseline of the owner's side goes with it (base/fs/baseline.h), so files that
 * changed there meanwhile are refused. A granted database is frozen as one file with its diff. A
 * change set records its grant and target and outlives machine and grant.
 *
 * The owner reviews it and ships files with the command line and the owner's own rights. The
 * journal records shipping before and after, with the hash of the shipped list.
 */
#pragma once

#include "base/sha256.h"
#include "service/net/net.h"
#include "service/service.h"

enum { CHANGESET_BYTES_MAX = 1 << 30 };

struct changeset_view {
    const char *id, *owner, *machine, *path;
    const char *machine_name; /* name given by the owner, or NULL */
    const char *slice;        /* place of the grant that was changed; usually the same path */
    const char *grant, *kind, *home; /* its grant: dir, repo, sqlite, postgres; NULL: none */
    const char *ref;                 /* of a repository: the cloned ref, or NULL */
    const char *base_sha256;         /* of a database: hash of the granted copy, or NULL */
    const char *sha256;              /* of the archive */
    const char *tainted;             /* untrusted source that the machine had read; NULL: none */
    const char *image_files;         /* JSON: paths that are as its image has them; or NULL */
    uint64_t bytes, created_ms, machine_ms; /* machine_ms: when the machine was created */
    bool revoked;                           /* the grant was revoked since */
};

typedef void service_changeset_fn(void *arg, const struct changeset_view *view,
                                  const struct err *err);

struct freeze_request {
    const char *path;  /* absolute path in the machine, or the place of a grant; NULL: /outbox */
    const char *slice; /* place of the grant that it changes; NULL: the same path */
};
void service_freeze(struct service *s, const struct caller *who, const char *machine,
                    const struct freeze_request *r, service_changeset_fn *done, void *arg);

/* Runs on a worker: deletes change sets frozen before that time. */
void changesets_trim(const char *home, int64_t before_ms);

/* fd: the archive; the receiver closes it. The view is valid during `done`. */
typedef void service_archive_fn(void *arg, const struct changeset_view *view, int fd,
                                const struct err *err);
void service_changeset_open(struct service *s, const struct caller *who, const char *id,
                            service_archive_fn *done, void *arg);
/* The same for the baseline of the owner's side; empty: unknown. */
void service_changeset_base(struct service *s, const struct caller *who, const char *id,
                            service_archive_fn *done, void *arg);

/* The diff of a database, as service_grant_diff() returned it when it was frozen. */
void service_changeset_database(struct service *s, const struct caller *who, const char *id,
                                service_net_fn *done, void *arg);

/* Records shipping, before and after it. Only for local owners. */
struct ship_request {
    const char *action; /* ship, shipped, undo, undone */
    const char *target; /* destination, for the reader */
    const char *sha256; /* of the list of shipped paths and hashes */
    struct given files;
    struct given intent; /* shipped and undone: the record that ship or undo returned */
    const char *now; /* shipped and undone: new state of the moved files as a baseline, or NULL */
};
struct ship_view {
    const char *changeset, *sha256;
    uint64_t record; /* number in the journal */
};
typedef void service_ship_fn(void *arg, const struct ship_view *view, const struct err *err);
/* On disk before it is answered. */
void service_ship(struct service *s, const struct caller *who, const char *id,
                  const struct ship_request *r, service_ship_fn *done, void *arg);
