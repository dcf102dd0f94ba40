/*
 * Throw-away databases on servers of owners.
 *
 * A database is recorded before it is created, and its row is deleted only after it was dropped. A
 * database without grant or machine is dropped; failures are retried for a limited time. The
 * process carrel-postgres does the work, so a slow server blocks nobody.
 */
#pragma once

#include "service/grants/inner.h"

struct databases *databases_new(struct service *s);
void databases_free(struct databases *d);

/*
 * Records a database and, encrypted, how to reach its server. dsn: as dsn_read() takes it, or the
 * name of a secret that holds it. It is on the disk only after databases_make().
 */
int databases_note(struct service *s, const struct database_row *row, const char *dsn,
                   struct err *err);
/* The stored DSN, or the present value of the secret that it names. The caller wipes it. */
int databases_dsn(struct service *s, const char *owner, const char *id, struct buf *ret,
                  struct err *err);

struct database_order {
    const char *id, *password;
    int64_t expires_ms; /* 0: never */
};
/* said: the address of the server, then a line per other database that the role may use. */
typedef void databases_fn(void *arg, const char *said, const struct err *err);
void databases_make(struct service *s, const struct database_order *o, databases_fn *done,
                    void *arg);

/*
 * Writes the databases of a machine that could not be dropped yet, in the form of grants, and
 * returns their number. Mode `dropping` while it is retried, then `given-up`.
 */
size_t databases_put_left(struct service *s, const char *machine, struct jot *j);
/* Stops retrying and leaves the database to its server. `busy`: dropping was not tried yet. */
int databases_forget(struct service *s, const struct caller *who, const char *machine,
                     const char *id, struct err *err);
