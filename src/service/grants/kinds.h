/* Kinds of grants, one row each. Only for src/service. */
#pragma once

#include "grant/dsn.h"
#include "service/net/net.h"
#include "service/state.h"
#include "store/databases.h"
#include "store/grants.h"

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
    /* A fork has it under another id, and what is kept under the first. NULL: nothing is. */
    int (*follow)(struct live *l, const char *of, const char *id, const char *place,
                  struct err *err);
    /* A fork gets a new one of its own: fills the row as read() does. NULL: as `inherited` says. */
    int (*renew)(struct live *l, const struct grant_row *of, struct grant_row *row,
                 struct err *err);
};

extern const struct grant_kind grant_dir, grant_file, grant_env, grant_secret, grant_repo,
    grant_identity, grant_sqlite, grant_postgres;

/* grants/kinds.c: the words of whatever becomes a file. */
int grant_file_read(struct service *s, const char *owner, const struct grant_request *r,
                    struct grant_row *row, struct err *err);

/* NULL with *err: there is no such kind. */
const struct grant_kind *grant_kind_find(const char *name, struct err *err);

/* What a machine is handed when it is made: rows that are not written yet. */
struct grant_plan {
    struct grant_row *rows;
    int *fds; /* of what is copied; -1. */
    bool *ours;
    size_t count;
};
void grant_plan_done(struct grant_plan *p);

/* ---- grants.c ---- */

/* Takes the row's texts; fd may be -1; ours: it is closed with the plan. */
void grant_plan_add(struct grant_plan *p, struct grant_row *row, int fd, bool ours);
/* Of a request, checked and opened, into a plan. */
int grant_plan_read(struct service *s, const struct caller *who, const struct grant_request *r,
                    int fd, struct grant_plan *p, struct err *err);
bool grant_wants_file(const struct grant_request *r);
int grant_read(struct service *s, const char *owner, const struct grant_request *r,
               const struct grant_kind **ret_kind, struct grant_row *row, struct err *err);
/* Writes the rows of a machine in the making, and into the journal. */
int grants_write(struct live *l, const struct caller *who, struct grant_plan *p, struct err *err);
/* Those of its source that a fork has; into the plan: those that it gets anew. *any: it has some.
 */
int grants_inherit(struct live *l, const struct live *from, struct grant_plan *p, bool *any,
                   struct err *err);
/* What has to be brought there, one after the other, once it runs; takes the plan over. */
void grants_deliver(struct live *l, struct grant_plan *p, service_done_fn *done, void *arg);
void grants_restore(struct live *l);
/* From the tick: what has expired is taken back. */
void grants_look(struct live *l, int64_t wall_ms);

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

/*
 * Those that did not outlive the host's restart: mounts of a box that was made anew. Inside the
 * transaction that says so of the box; and in the journal once that is committed.
 */
int grants_write_woken(struct live *l, struct grant_list *ret, struct err *err);
void grants_note_woken(struct live *l, const struct grant_list *gone);

/* ---- grants/sqlite.c ---- */

/* From the tick: copies whose grant is over are removed, if there may be any. */
void sqlite_look(struct service *s);
/* The copy that was handed over, as a descriptor; it stays as long as the grant. */
int sqlite_base(const struct service *s, const struct grant_row *row, struct err *err);
/*
 * What service_grant_diff() says of one; and what the machine has, as one image, written to
 * `frozen` if that is a descriptor: sound, or it fails. It stays the caller's.
 */
void sqlite_freeze(struct service *s, const struct caller *who, const struct grant_row *row,
                   int frozen, service_net_fn *done, void *arg);
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
/* What became of it since; it never fails, but says why it is not known. */
void postgres_tell(struct live *l, const struct grant_row *row, service_net_fn *done, void *arg);

/* ---- risks.c ---- */

enum { RISKS_SIZE = 640 };
/* Do private data, texts of strangers and a way out come together? */
bool risks_find(struct live *l, char ret[RISKS_SIZE]);
/* The same, and if it is new it is kept with the machine, in the journal and told. */
bool risks_note(struct live *l, char ret[RISKS_SIZE]);

/* ---- inside.c ---- */

enum { INSIDE_WORDS = 6 };
/* A script for its shell, as its user; the first word is $0. It fails with what it said. */
void inside_run(struct live *l, const char *script, const char *const *words, service_done_fn *done,
                void *arg);
