/*
 * Internal state of grants, shared by the files of src/service/grants. Only they include this
 * header; other files call the functions of grants/live.h.
 */
#pragma once

#include "grant/dsn.h"
#include "service/grants/kinds.h"
#include "service/grants/live.h"
#include "service/state.h"
#include "store/databases.h"

/* Counters since the start of the daemon. */
enum grant_fate { GRANT_ADDED, GRANT_REVOKED, GRANT_EXPIRED, GRANT_FATES };
enum { GRANT_KINDS_MAX = 12 };

struct comparing;
struct databases;
struct sqlite_fetch;

/* Part of struct service. */
struct service_grants {
    struct databases *databases;
    struct comparing *comparisons; /* comparisons of databases in progress */
    struct sqlite_fetch *fetches;  /* reads of databases in progress */
    bool copies_unswept;           /* there may be unused copies of databases */
    uint64_t fates[GRANT_KINDS_MAX][GRANT_FATES];
};

/* Part of struct live. */
struct live_grants {
    bool granting;  /* a grant is being delivered or revoked */
    int64_t due_ms; /* when the first grant expires; 0: never */
    bool half;      /* an earlier daemon may have stopped before a grant was delivered */
};

/* grants/kinds.c: reads the request of any kind that becomes a file. */
int grant_file_read(struct service *s, const char *owner, const struct grant_request *r,
                    struct grant_row *row, struct err *err);

/* NULL with *err: unknown kind. */
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

/* Copies a file of the host into the machine, owned by its user; creates parents. */
struct handover {
    const char *path;
    uint32_t mode;
    bool as_root; /* owned by root */
};
void handover_file(struct live *l, int fd, const struct handover *to, service_done_fn *done,
                   void *arg);
/* The same with text. */
void handover_text(struct live *l, const char *text, const struct handover *to,
                   service_done_fn *done, void *arg);
void handover_remove(struct live *l, const char *path, service_done_fn *done, void *arg);

/* ---- grants/sqlite.c ---- */

/* The path of the copy that is kept as long as the grant. */
int grant_copy_path(const struct service *s, const char *id, char ret[PLACE_SIZE + 64],
                    struct err *err);
/* Copies all fields except those private to the kind. */
void grant_row_copy(const struct grant_row *from, struct grant_row *to);
/* Writes the first members of a database diff. */
void grant_put_head(struct jot *j, const struct grant_row *row);

/* ---- sqlite_fetch.c ---- */

enum { SQLITE_FILE_MAX = 512 << 20 }; /* limit of carrel-sqlite */

/*
 * Reads the machine's database and its log, both of one instant, into two files of the caller.
 * ERR_BUSY: a transaction is in progress, or it is written all the time. Reads in progress fail
 * when the daemon stops.
 */
void sqlite_fetch(struct service *s, const struct caller *who, const struct grant_row *row,
                  const int fds[2], service_done_fn *done, void *arg);
void sqlite_fetch_release(struct service *s);

/* ---- grants/postgres.c ---- */

void postgres_restore(struct live *l); /* tells the gate the address of its database */
void postgres_name(const char *id, char ret[DATABASE_NAME_SIZE]); /* of database and role */
const char *postgres_password(const struct live *l);              /* password of the role */
int postgres_dsn(struct live *l, const char *id, struct dsn *ret, struct err *err);

/* ---- postgres_look.c ---- */

/* text: a line per object; cut: there are more. */
typedef void postgres_looked_fn(void *arg, const char *text, bool cut, const struct err *err);
void postgres_look(struct live *l, const char *id, postgres_looked_fn *done, void *arg);
/*
 * Saves the content at the time of the grant. `done` is called when it is on disk, or after the
 * failure is logged.
 */
void postgres_keep(struct live *l, const char *id, const char *text, loop_fn *done, void *arg);

/* ---- inside.c ---- */

enum { INSIDE_WORDS = 6 };
/*
 * Runs a shell script in the machine as its user; the first word is $0. On failure the error is its
 * stderr.
 */
void inside_run(struct live *l, const char *script, const char *const *words, service_done_fn *done,
                void *arg);
