/*
 * Private declarations of src/store: the store and its prepared statements.
 *
 * Tables are described by columns, so that query_read() and query_bind() serve all tables.
 */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/defer.h"
#include "store/ballast.h"
#include "store/db.h"
#include "store/flusher.h"

/* ---- Columns: how a member of a row struct and a column of a table correspond ---- */

enum column_type {
    COL_TEXT, /* char[size] */
    COL_NAME, /* char[size]; empty is stored as NULL, which a unique index ignores */
    COL_HEAP, /* char *, at most STORE_JSON_MAX bytes; NULL is stored as an empty text */
    COL_JSON, /* JSON; like COL_HEAP, but NULL is stored as {} */
    COL_U64,  /* uint64_t, at most STORE_NUMBER_MAX */
    COL_U32,
    COL_I64,
    COL_ENUM, /* an enum from 1 to `size` */
    COL_BITS, /* uint64_t, all 64 bits of it */
    COL_HASH, /* uint8_t[SHA256_BYTES]; all zero is stored as NULL */
    COL_UID,  /* int64_t; -1 is stored as NULL */
};

struct column {
    const char *name;
    enum column_type type;
    size_t offset;
    size_t size;
};

struct table {
    const char *name;
    size_t row_size;
    const struct column *columns;
    size_t count;
};

extern const struct table machine_table, exec_table, owner_table, token_table, event_table,
    step_table, root_table, saved_table;
extern const struct table account_table, hold_table, secret_table, grant_table, database_table,
    pending_table, image_table, build_table, volume_table, timer_table, backup_table,
    changeset_table;

/* ---- Statements ---- */

/* Each SQL statement has one row in statements.c. */
enum statement {
    STMT_BEGIN,
    STMT_COMMIT,
    STMT_ROLLBACK,
    STMT_MACHINE_ADD,
    STMT_MACHINE_BY_KEY,
    STMT_MACHINE_GET,
    STMT_MACHINE_BY_NAME,
    STMT_MACHINE_BY_PREFIX,
    STMT_MACHINE_LIST,
    STMT_MACHINE_LIST_LIVE,
    STMT_MACHINE_LIST_OWNER,
    STMT_MACHINE_UPDATE,
    STMT_MACHINE_STATE,
    STMT_MACHINE_RUNNING,
    STMT_MACHINE_END,
    STMT_MACHINE_TOKENS,
    STMT_MACHINE_UNKEY,
    STMT_MACHINE_OLD,
    STMT_MACHINE_IDS,
    STMT_META_GET,
    STMT_META_ADD,
    STMT_MACHINE_TRIM,
    STMT_MACHINE_QUOTA,
    STMT_MACHINE_QUOTA_TOKEN,
    STMT_MACHINE_COUNTS,
    STMT_MACHINE_COUNTS_OWNER,
    STMT_EXEC_ADD,
    STMT_EXEC_NUMBER,
    STMT_EXEC_BY_KEY,
    STMT_EXEC_GET,
    STMT_EXEC_BY_NUMBER,
    STMT_EXEC_BY_PID,
    STMT_EXEC_LIST,
    STMT_EXEC_STARTED,
    STMT_EXEC_FINISH,
    STMT_EXEC_STORE,
    STMT_EXEC_LOSE,
    STMT_EXEC_TRIM,
    STMT_OWNER_PUT,
    STMT_OWNER_GET,
    STMT_OWNER_BY_UID,
    STMT_OWNER_LIST,
    STMT_TOKEN_ADD,
    STMT_TOKEN_CHECK,
    STMT_TOKEN_USED,
    STMT_TOKEN_GET,
    STMT_TOKEN_LIST,
    STMT_TOKEN_REVOKE,
    STMT_EVENT_ADD,
    STMT_EVENT_LIST,
    STMT_EVENT_RANGE,
    STMT_EVENT_TRIM,
    STMT_STEP_ADD,
    STMT_STEP_NUMBER,
    STMT_STEP_UPDATE,
    STMT_STEP_FIND,
    STMT_STEP_POINT,
    STMT_STEP_LIST,
    STMT_STEP_OLDEST,
    STMT_STEP_COUNT,
    STMT_STEP_NAME,
    STMT_STEP_DELETE,
    STMT_ROOT_PUT,
    STMT_ROOT_GET,
    STMT_STACKS_WITH,
    STMT_STACKS_OF_OTHERS,
    STMT_STACKS_ALL,
    STMT_SAVED_PUT,
    STMT_SAVED_GET,
    STMT_SAVED_USED,
    STMT_STEP_DURABLE,
    STMT_STEP_MOVE,
    STMT_STEPS_LOSE,
    STMT_STEPS_LOSE_BEGUN,
    STMT_NETWORK_GET,
    STMT_NETWORK_SET,
    STMT_NETWORK_AUTHORITY_GET,
    STMT_NETWORK_AUTHORITY_SET,
    STMT_NETWORK_NAME_PUT,
    STMT_NETWORK_NAMES,
    STMT_ACCOUNT_PUT,
    STMT_ACCOUNT_GET,
    STMT_ACCOUNT_DEPTH,
    STMT_ACCOUNT_LINE,
    STMT_ACCOUNT_HOLD,
    STMT_ACCOUNT_SPEND,
    STMT_HOLD_ADD,
    STMT_HOLD_GET,
    STMT_HOLD_DROP,
    STMT_HOLD_COUNT,
    STMT_HOLD_ANY,
    STMT_SPENDING_ADD,
    STMT_SPENDING_DROP,
    STMT_SPENDING_BY_DAY,
    STMT_SPENDING_BY_MODEL,
    STMT_SPENDING_BY_MACHINE,
    STMT_SPENDING_BY_OWNER,
    STMT_SECRET_PUT,
    STMT_SECRET_VALUE,
    STMT_SECRET_USED,
    STMT_SECRET_COUNT,
    STMT_SECRET_LIST,
    STMT_SECRET_REMOVE,
    STMT_GRANT_PUT,
    STMT_GRANT_LIST,
    STMT_GRANT_GET,
    STMT_GRANT_REMOVE,
    STMT_GRANT_DUE,
    STMT_GRANT_KINDS,
    STMT_GRANT_LIVES,
    STMT_TAINT_PUT,
    STMT_TAINT_EACH,
    STMT_TAINT_TRIM,
    STMT_DATABASE_PUT,
    STMT_DATABASE_REMOVE,
    STMT_DATABASE_LIST,
    STMT_DATABASE_ORPHANS,
    STMT_EXPOSURE_PUT,
    STMT_EXPOSURE_REMOVE,
    STMT_EXPOSURES,
    STMT_PENDING_PUT,
    STMT_PENDING_REMOVE,
    STMT_PENDING_LIST,
    STMT_IMAGE_PUT,
    STMT_IMAGE_FIND,
    STMT_IMAGE_LIST,
    STMT_IMAGE_DELETE,
    STMT_IMAGE_TOTALS,
    STMT_IMAGE_DISK,
    STMT_IMAGE_USES,
    STMT_IMAGE_MACHINES,
    STMT_BUILD_PUT,
    STMT_BUILD_LIST,
    STMT_BUILD_DELETE,
    STMT_BUILDS_LOSE,
    STMT_VOLUME_ADD,
    STMT_VOLUME_LIST,
    STMT_VOLUME_REMOVE,
    STMT_VOLUME_EXISTS,
    STMT_VOLUME_USES,
    STMT_VOLUME_DISK,
    STMT_VOLUME_TOTALS,
    STMT_BACKUP_ADD,
    STMT_BACKUP_REMOVE,
    STMT_BACKUP_LIST,
    STMT_BACKUP_LAST,
    STMT_BACKUP_DISK,
    STMT_TAINT_REMOVE,
    STMT_TIMER_PUT,
    STMT_TIMER_LIST,
    STMT_TIMER_DUE,
    STMT_TIMER_NEXT,
    STMT_TIMER_REMOVE,
    STMT_CHANGESET_NUMBER,
    STMT_CHANGESET_ADD,
    STMT_CHANGESET_FIND,
    STMT_CHANGESET_LAST,
    STMT_CHANGESET_SET,
    STMT_CHANGESET_LIST,
    STMT_CHANGESET_LIST_OWNER,
    STMT_CHANGESET_LIST_MACHINE,
    STMT_CHANGESET_COUNT,
    STMT_CHANGESETS_RETURN,
    STMT_CHANGESETS_FORGET,
    STMT_COUNT,
};

struct store {
    sqlite3 *db;
    sqlite3_stmt *statements[STMT_COUNT];
    struct journal *journal;
    struct flusher *flusher;
    int lock_fd;
    int home_fd;
    uint8_t secrets_key[32];
    bool has_secrets_key;
    uint64_t commits;
    struct ballast ballast;
    bool full; /* the last failed write found no space */
    void (*broken)(const struct err *why);
    char id[ID_SIZE]; /* id of the store; see identity.c */
};

int store_identity_open(struct store *s, struct err *err);

/* Writes the SQL of a statement, with its lists of columns. False: out of memory. */
bool statement_text(enum statement id, struct buf *ret);

/* A statement in use. QUERY declares one that is reset when it leaves its scope. */
struct query {
    struct store *store;
    sqlite3_stmt *stmt;
};
#define QUERY struct query q DEFER(query_done) = {0}

int query_start(struct query *q, struct store *s, enum statement id, struct err *err);
void query_done(struct query *q);

/* After a disk failure: refuses all further writes and calls the store's callback. */
void store_broken(struct store *s, const struct err *why);

/* Bind a value to ?1, ?2, ... A NULL text is an SQL NULL. Texts must outlive the query. */
void query_text(struct query *q, int at, const char *text);
void query_i64(struct query *q, int at, int64_t value);
void query_u64(struct query *q, int at, uint64_t value); /* at most INT64_MAX */
void query_blob(struct query *q, int at, const void *bytes, size_t len);
/* Binds all columns of a row, from ?1 on. ERR_INVALID or ERR_LIMIT names a value out of range. */
int query_bind(struct query *q, const struct table *table, const void *row, struct err *err);

/* Runs a statement that returns no rows; *ret_changed (may be NULL): rows that it changed. */
int query_run(struct query *q, size_t *ret_changed, struct err *err);
/* Returns 1 if a row is ready for sqlite3_column_*() or query_read(), 0 if no row is left. */
int query_step(struct query *q, struct err *err);
/* Reads a whole row into *ret, which owns its texts. After a failure *ret owns nothing. */
int query_read(struct query *q, const struct table *table, void *ret, struct err *err);
/*
 * Reads the only row. ERR_NOT_FOUND names the missing object: query_one(&q, table, ret, "machine",
 * id, err).
 */
int query_one(struct query *q, const struct table *table, void *ret, const char *what,
              const char *which, struct err *err);
/* Reads all rows into one array; the statement limits their number. */
int query_all(struct query *q, const struct table *table, void **ret, size_t *ret_count,
              struct err *err);

void row_done(const struct table *table, void *row);
void rows_free(const struct table *table, void *rows, size_t count);

/* ---- Errors and names ---- */

/* Converts an SQLite error: err_sqlite(err, db, rc, "cannot write the machine"). */
int err_sqlite(struct err *err, sqlite3 *db, int code, const char *what);

/* An enumeration, what it is called, and the names of its numbers; names[0] is unused. */
struct names {
    const char *what;
    const char *const *names;
    int count;
};
const char *names_get(const struct names *n, int value);
int names_parse(const struct names *n, const char *text, int *ret, struct err *err);

/*
 * Looks for an earlier request with this idempotency key. Returns 1 and its id, or 0 if there is
 * none. ERR_INVALID: the earlier request had another body.
 */
int idempotency_check(struct query *q, const uint8_t hash[SHA256_BYTES], const char *key,
                      char ret_id[ID_SIZE], struct err *err);

static inline size_t page_limit(size_t wanted) {
    if (wanted == 0)
        return 100;
    return wanted < STORE_PAGE_MAX ? wanted : STORE_PAGE_MAX;
}
