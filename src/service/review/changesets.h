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
    const char *machine_name; /* as its owner called it; or NULL */
    const char *slice; /* what was handed over, by its place in the machine; mostly the same path */
    const char *grant, *kind, *home; /* it as a grant: dir, repo, sqlite, postgres; NULL: none */
    const char *ref;                 /* of a repository: what it was cloned from; or NULL */
    const char *base_sha256;         /* of a database: of the copy that was handed over; or NULL */
    const char *sha256;              /* of the archive */
    const char *tainted;             /* what it had read from that is not trusted; NULL: nothing */
    const char *image_files;         /* JSON: paths that are as its image has them; or NULL */
    uint64_t bytes, created_ms, machine_ms; /* machine_ms: when the machine was made */
    bool revoked;                           /* its owner took the grant back since */
};

typedef void service_changeset_fn(void *arg, const struct changeset_view *view,
                                  const struct err *err);

struct freeze_request {
    const char *path;  /* absolute, in the machine; or the place of a grant; NULL: /outbox */
    const char *slice; /* what it is the work on; NULL: the same path */
};
void service_freeze(struct service *s, const struct caller *who, const char *machine,
                    const struct freeze_request *r, service_changeset_fn *done, void *arg);

/* On a worker: those that were frozen before then are gone. */
void changesets_trim(const char *home, int64_t before_ms);

/* fd: the archive, to be closed by the caller. The view lives during the call of `done`. */
typedef void service_archive_fn(void *arg, const struct changeset_view *view, int fd,
                                const struct err *err);
void service_changeset_open(struct service *s, const struct caller *who, const char *id,
                            service_archive_fn *done, void *arg);
/* The same for what the owner's side was; empty: that is not known. */
void service_changeset_base(struct service *s, const struct caller *who, const char *id,
                            service_archive_fn *done, void *arg);

/* Of a database: what differs in it, as service_grant_diff() told it when it was frozen. */
void service_changeset_database(struct service *s, const struct caller *who, const char *id,
                                service_net_fn *done, void *arg);

/* What is about to be done with it, and what was. Only for owners, on this host. */
struct ship_request {
    const char *action; /* ship, shipped, undo, undone */
    const char *target; /* where to, for the reader */
    const char *sha256; /* of the list of paths and hashes that go out */
    struct given files;
    struct given intent; /* of shipped and undone: what ship or undo answered */
    const char *now;     /* of these: what the files that moved are now, as a baseline; or NULL */
};
struct ship_view {
    const char *changeset, *sha256;
    uint64_t record; /* of the journal */
};
typedef void service_ship_fn(void *arg, const struct ship_view *view, const struct err *err);
/* On the disk before it is answered. */
void service_ship(struct service *s, const struct caller *who, const char *id,
                  const struct ship_request *r, service_ship_fn *done, void *arg);
