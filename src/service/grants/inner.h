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

/* What happened to a grant; `fates` below counts them since the start of the daemon. */
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
    bool half;      /* a grant may be undelivered, because the last daemon stopped meanwhile */
};

/* kinds.c: reads the request for a grant that is copied into the machine as a file. */
int grant_file_read(struct service *s, const char *owner, const struct grant_request *r,
                    struct grant_row *row, struct err *err);

/* Returns the kind of this name; NULL with *err if there is none. */
const struct grant_kind *grant_kind_find(const char *name, struct err *err);

/* ---- grants.c ---- */

int grant_read(struct service *s, const char *owner, const struct grant_request *r,
               const struct grant_kind **ret_kind, struct grant_row *row, struct err *err);
void grants_count(struct service *s, const char *kind, enum grant_fate fate);
/*
 * Writes the grant as JSON to *text, for the journal and events. `detail` is left out, because it
 * may be private. Returns NULL if the text is too long.
 */
const char *grants_describe(const struct grant_row *row, struct buf *text);
/* Writes a journal record about the grant; a failure is only logged. */
void grants_note(struct live *l, const struct caller *who, const char *verb,
                 const struct grant_row *row);
/* Calls `done` with the machine's grants as JSON. */
void grants_answer(struct live *l, service_net_fn *done, void *arg);

/* ---- plan.c ---- */

/*
 * Stores all rows of the plan and the changes that they make to the machine, in one transaction.
 * from: the machine that this one is a fork of, whose grants are inherited; or NULL.
 */
int grants_settle_all(struct live *l, const struct live *from, struct grant_plan *p,
                      struct err *err);

/* ---- handover.c ---- */

/* Where a copied file goes in the machine. Missing directories above it are created. */
struct handover {
    const char *path;
    uint32_t mode;
    bool as_root; /* root owns the file; else the user that commands run as */
};
/* Copies the content of a file of the host into the machine. */
void handover_file(struct live *l, int fd, const struct handover *to, service_done_fn *done,
                   void *arg);
/* Like handover_file(), but the content of the file is `text`. */
void handover_text(struct live *l, const char *text, const struct handover *to,
                   service_done_fn *done, void *arg);
void handover_remove(struct live *l, const char *path, service_done_fn *done, void *arg);

/* ---- grants/sqlite.c ---- */

/* Makes the path on the host of the copy that is kept as long as grant `id`, and its directory. */
int grant_copy_path(const struct service *s, const char *id, char ret[PLACE_SIZE + 64],
                    struct err *err);
/* Copies all fields except `detail`, which is private to the kind. */
void grant_row_copy(const struct grant_row *from, struct grant_row *to);
/* Opens the JSON object of a database diff and writes its first fields. */
void grant_put_head(struct jot *j, const struct grant_row *row);

/* ---- sqlite_fetch.c ---- */

enum { SQLITE_FILE_MAX = 512 << 20 }; /* bytes of the largest database that carrel-sqlite reads */

/*
 * Reads the machine's SQLite database and its log into fds[0] and fds[1], both as they were at one
 * instant. ERR_BUSY: a transaction is in progress, or programs write the database all the time.
 */
void sqlite_fetch(struct service *s, const struct caller *who, const struct grant_row *row,
                  const int fds[2], service_done_fn *done, void *arg);
/* Ends all reads with an error, when the daemon stops. */
void sqlite_fetch_release(struct service *s);

/* ---- grants/postgres.c ---- */

void grants_restore_start(struct live *l); /* sets l->cwd (start_dir.c) */
void postgres_restore(struct live *l); /* tells the gate the address of the machine's database */
void postgres_name(const char *id, char ret[DATABASE_NAME_SIZE]); /* name of database and role */
const char *postgres_password(const struct live *l);              /* password of the role */
int postgres_dsn(struct live *l, const char *id, struct dsn *ret, struct err *err);

/* ---- postgres_look.c ---- */

/* text: a line per object of the database; cut: there are more objects. */
typedef void postgres_looked_fn(void *arg, const char *text, bool cut, const struct err *err);
void postgres_look(struct live *l, const char *id, postgres_looked_fn *done, void *arg);
/*
 * Saves `text` as the content of the database at the time of the grant. `done` is called when it is
 * on disk, or after a failure is logged.
 */
void postgres_keep(struct live *l, const char *id, const char *text, loop_fn *done, void *arg);

/* ---- inside.c ---- */

enum { INSIDE_WORDS = 6 };
/*
 * Runs a shell script in the machine as its user. `words` are the arguments; the first is $0. If
 * the script fails, the error has the first line of its stderr. exec: the id of the command, or
 * NULL if it did not start.
 */
typedef void inside_done_fn(void *arg, const char *exec, const struct err *err);
void inside_run(struct live *l, const char *script, const char *const *words, inside_done_fn *done,
                void *arg);
