/*
 * The inside of grants: the state of grants/, and what its files share. Only files of
 * src/service/grants include this header; others call the functions of grants/live.h.
 */
#pragma once

#include "grant/dsn.h"
#include "service/grants/kinds.h"
#include "service/grants/live.h"
#include "service/state.h"
#include "store/databases.h"

/* What became of grants since the daemon started. */
enum grant_fate { GRANT_ADDED, GRANT_REVOKED, GRANT_EXPIRED, GRANT_FATES };
enum { GRANT_KINDS_MAX = 12 };

struct comparing;
struct databases;
struct sqlite_fetch;

/* Part of struct service. */
struct service_grants {
    struct databases *databases;
    struct comparing *comparisons; /* of databases, with what was handed over */
    struct sqlite_fetch *fetches;  /* of databases, out of machines */
    bool copies_unswept;           /* there may be a copy of a database that nobody needs */
    uint64_t fates[GRANT_KINDS_MAX][GRANT_FATES];
};

/* Part of struct live. */
struct live_grants {
    bool granting;  /* a grant is being handed over or taken back */
    int64_t due_ms; /* when the first of its grants ends; 0: none does */
    bool half;      /* an earlier daemon may have left before one of them was given */
};

/* grants/kinds.c: the words of whatever becomes a file. */
int grant_file_read(struct service *s, const char *owner, const struct grant_request *r,
                    struct grant_row *row, struct err *err);

/* NULL with *err: there is no such kind. */
const struct grant_kind *grant_kind_find(const char *name, struct err *err);

/* ---- grants.c ---- */

int grant_read(struct service *s, const char *owner, const struct grant_request *r,
               const struct grant_kind **ret_kind, struct grant_row *row, struct err *err);
void grants_count(struct service *s, const char *kind, enum grant_fate fate);
/* For the journal and events, in *text: the grant as JSON, without `detail`. NULL: too long. */
const char *grants_describe(const struct grant_row *row, struct buf *text);
/* Writes a journal record; a failure is logged. */
void grants_note(struct live *l, const struct caller *who, const char *verb,
                 const struct grant_row *row);
/* Calls `done` with the machine's grants as JSON. */
void grants_answer(struct live *l, service_net_fn *done, void *arg);

/* ---- plan.c ---- */

/* Stores all rows and the changes that their kinds make to the machine, or nothing. from: the
 * source of a fork, whose grants it gets too; or NULL. */
int grants_settle_all(struct live *l, const struct live *from, struct grant_plan *p,
                      struct err *err);

/* ---- handover.c ---- */

/* A file of the host into the machine, as its user's; parents are made. */
struct handover {
    const char *path;
    uint32_t mode;
    bool as_root; /* it is root's */
};
void handover_file(struct live *l, int fd, const struct handover *to, service_done_fn *done,
                   void *arg);
/* The same with bytes. */
void handover_text(struct live *l, const char *text, const struct handover *to,
                   service_done_fn *done, void *arg);
void handover_remove(struct live *l, const char *path, service_done_fn *done, void *arg);

/* ---- grants/sqlite.c ---- */

/* Where what was handed over stays as long as the grant. */
int grant_copy_path(const struct service *s, const char *id, char ret[PLACE_SIZE + 64],
                    struct err *err);
/* All but what its kind keeps. */
void grant_row_copy(const struct grant_row *from, struct grant_row *to);
/* The first members of what is said of a database. */
void grant_put_head(struct jot *j, const struct grant_row *row);

/* ---- sqlite_fetch.c ---- */

enum { SQLITE_FILE_MAX = 512 << 20 }; /* as carrel-sqlite takes it */

/*
 * The database that a machine has where the grant put it, and its log, as of one instant, into two
 * files, which stay the caller's. ERR_BUSY: it is in the middle of a transaction, or being written
 * all the time. What is under way when the daemon leaves fails.
 */
void sqlite_fetch(struct service *s, const struct caller *who, const struct grant_row *row,
                  const int fds[2], service_done_fn *done, void *arg);
void sqlite_fetch_release(struct service *s);

/* ---- grants/postgres.c ---- */

void postgres_restore(struct live *l);                            /* where its database is */
void postgres_name(const char *id, char ret[DATABASE_NAME_SIZE]); /* of the database and its role */
const char *postgres_password(const struct live *l);              /* of the role */
int postgres_dsn(struct live *l, const char *id, struct dsn *ret, struct err *err);

/* ---- postgres_look.c ---- */

/* text: what there is, a line each; cut: and more. */
typedef void postgres_looked_fn(void *arg, const char *text, bool cut, const struct err *err);
void postgres_look(struct live *l, const char *id, postgres_looked_fn *done, void *arg);
/* As it was handed over; `done` when that is on the disk, or the log says why it is not. */
void postgres_keep(struct live *l, const char *id, const char *text, loop_fn *done, void *arg);

/* ---- inside.c ---- */

enum { INSIDE_WORDS = 6 };
/* A script for its shell, as its user; the first word is $0. It fails with what it said. */
void inside_run(struct live *l, const char *script, const char *const *words, service_done_fn *done,
                void *arg);
