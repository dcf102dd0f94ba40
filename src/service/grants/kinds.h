/* Kinds of grants, one row each. Only for files of src/service that define a kind. */
#pragma once

#include "service/service.h"
#include "store/grants.h"

struct live;

struct grant_kind {
    const char *name;
    bool copies;    /* the bytes of a file of the host come with it */
    bool delivered; /* a machine that was made with it needs give(); else the row is enough */
    bool inherited; /* a fork has it, as it has the files */
    /* Checks the words and fills the row; place is what a person would expect if none is given. */
    int (*read)(struct service *s, const char *owner, const struct grant_request *r,
                struct grant_row *row, struct err *err);
    /* Fills in what only this machine has. NULL: nothing. */
    int (*settle)(struct live *l, struct grant_row *row, struct err *err);
    /* It counts from now on; the row is written already. fd: of what is copied. */
    void (*give)(struct live *l, const struct grant_row *row, int fd, service_done_fn *done,
                 void *arg);
    void (*take)(struct live *l, const struct grant_row *row, service_done_fn *done, void *arg);
    /* Takes back what settle() and give() wrote beside the row, in the transaction that removes
     * it; comes again when that fails. NULL: nothing. */
    int (*unsettle)(struct live *l, const struct grant_row *row, struct err *err);
    /* A row whose give() did not end: the daemon left before. NULL: the row does not tell. */
    bool (*is_half)(const struct grant_row *row);
    /* A fork has it under another id, and what is kept under the first. NULL: nothing is. */
    int (*follow)(struct live *l, const char *of, const char *id, const char *place,
                  struct err *err);
    /* A fork gets a new one of its own: fills the row as read() does. NULL: as `inherited` says. */
    int (*renew)(struct live *l, const struct grant_row *of, struct grant_row *row,
                 struct err *err);
};

extern const struct grant_kind grant_dir, grant_file, grant_env, grant_secret, grant_repo,
    grant_identity, grant_sqlite, grant_postgres;
