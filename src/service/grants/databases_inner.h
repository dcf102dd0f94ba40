/*
 * Throw-away databases on PostgreSQL servers of owners.
 *
 * A database has a row in the store before it is created, and the row is deleted only after the
 * database was dropped. A database without a grant or a machine is dropped; failures are retried
 * for a limited time. The process carrel-postgres does the work, so a slow server blocks nobody.
 */
#pragma once

#include "service/grants/inner.h"

struct databases *databases_new(struct service *s);
void databases_free(struct databases *d);

/*
 * Stores the row of a database and, encrypted, `dsn`: the server URL as dsn_read() takes it, or the
 * name of a secret that holds the URL. Both are on disk only after databases_make().
 */
int databases_note(struct service *s, const struct database_row *row, const char *dsn,
                   struct err *err);
/* Returns the `dsn` that databases_note() stored. The caller wipes it. */
int databases_dsn(struct service *s, const char *owner, const char *id, struct buf *ret,
                  struct err *err);

struct database_order {
    const char *id, *password;
    int64_t expires_ms; /* 0: never */
};
/*
 * said: a line with the address of the server, then a line per other database that the role may
 * use; NULL with err.
 */
typedef void databases_fn(void *arg, const char *said, const struct err *err);
void databases_make(struct service *s, const struct database_order *o, databases_fn *done,
                    void *arg);

/*
 * Writes the databases of a machine that could not be dropped yet, in the form of grants, and
 * returns their number. The mode is `dropping` while the daemon still tries, then `given-up`.
 */
size_t databases_put_left(struct service *s, const char *machine, struct jot *j);
/*
 * Stops the tries to drop a database, which stays on its server. Fails with ERR_BUSY while a try
 * runs, or if none was made yet.
 */
int databases_forget(struct service *s, const struct caller *who, const char *machine,
                     const char *id, struct err *err);
