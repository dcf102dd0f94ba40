/* The interface of a kind of grants. Only files of src/service that define a kind include this. */
#pragma once

#include "service/service.h"
#include "store/grants.h"

struct live;

struct grant_kind {
    const char *name;
    bool copies;    /* a file of the host is copied */
    bool delivered; /* give() must be called for a new machine; else the row is enough */
    bool inherited; /* a fork gets the same grant */
    /* Checks the request and fills the row; `place` gets a default if the request has none. */
    int (*read)(struct service *s, const char *owner, const struct grant_request *r,
                struct grant_row *row, struct err *err);
    /* Fills the fields of the row that depend on the machine. NULL: there are none. */
    int (*settle)(struct live *l, struct grant_row *row, struct err *err);
    /* Puts the grant into effect; the row is already written. fd: descriptor of data to copy. */
    void (*give)(struct live *l, const struct grant_row *row, int fd, service_done_fn *done,
                 void *arg);
    /* Removes what give() put into the machine, before the row is deleted. */
    void (*take)(struct live *l, const struct grant_row *row, service_done_fn *done, void *arg);
    /*
     * Deletes what settle() and give() stored beside the row, in the transaction that deletes the
     * row. Called again if the transaction fails. NULL: nothing to delete.
     */
    int (*unsettle)(struct live *l, const struct grant_row *row, struct err *err);
    /* True if give() did not finish because the daemon stopped. NULL: the row cannot tell. */
    bool (*is_half)(const struct grant_row *row);
    /* Links stored data of grant `of` to `id`, the id of the fork's grant. NULL: no such data. */
    int (*follow)(struct live *l, const char *of, const char *id, const char *place,
                  struct err *err);
    /* Fills the row of a new grant that the fork gets in place of `of`. NULL: see `inherited`. */
    int (*renew)(struct live *l, const struct grant_row *of, struct grant_row *row,
                 struct err *err);
};

extern const struct grant_kind grant_dir, grant_file, grant_env, grant_secret, grant_repo,
    grant_identity, grant_sqlite, grant_postgres, grant_volume, grant_login;
