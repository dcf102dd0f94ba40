/* Kinds of grants, a row per kind. Only for files of src/service that define a kind. */
#pragma once

#include "service/service.h"
#include "store/grants.h"

struct live;

struct grant_kind {
    const char *name;
    bool copies;    /* a file of the host is copied */
    bool delivered; /* give() must be called for a new machine; else the row is enough */
    bool inherited; /* a fork inherits it */
    /* Checks the request and fills the row; `place` has a sensible default. */
    int (*read)(struct service *s, const char *owner, const struct grant_request *r,
                struct grant_row *row, struct err *err);
    /* Fills in what depends on the machine. NULL: nothing. */
    int (*settle)(struct live *l, struct grant_row *row, struct err *err);
    /* Puts the grant into effect; the row is already written. fd: of the data to copy. */
    void (*give)(struct live *l, const struct grant_row *row, int fd, service_done_fn *done,
                 void *arg);
    void (*take)(struct live *l, const struct grant_row *row, service_done_fn *done, void *arg);
    /*
     * Deletes what settle() and give() stored beside the row, in the transaction that deletes the
     * row. Repeated if that fails. NULL: nothing.
     */
    int (*unsettle)(struct live *l, const struct grant_row *row, struct err *err);
    /* True if give() did not finish because the daemon stopped. NULL: the row does not show it. */
    bool (*is_half)(const struct grant_row *row);
    /* A fork has the grant under another id: links its stored data to it. NULL: none. */
    int (*follow)(struct live *l, const char *of, const char *id, const char *place,
                  struct err *err);
    /* A fork gets a new one: fills the row as read() does. NULL: see `inherited`. */
    int (*renew)(struct live *l, const struct grant_row *of, struct grant_row *row,
                 struct err *err);
};

extern const struct grant_kind grant_dir, grant_file, grant_env, grant_secret, grant_repo,
    grant_identity, grant_sqlite, grant_postgres;
