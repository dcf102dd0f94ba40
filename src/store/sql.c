#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/json_check.h"
#include "store/store.h"

/* ---- Errors ---- */

static const struct {
    int code;
    enum err_code to;
    const char *text;
    const char *remedy;
} sqlite_errors[] = {
    {SQLITE_FULL, ERR_LIMIT, "the disk is full", "make room on the disk that holds CARREL_HOME"},
    {SQLITE_TOOBIG, ERR_LIMIT, "a value is too large for the database", ""},
    {SQLITE_NOMEM, ERR_LIMIT, "out of memory", ""},
    {SQLITE_BUSY, ERR_BUSY, "another program has locked carrel.db",
     "stop that program, then try again"},
    {SQLITE_LOCKED, ERR_BUSY, "another connection has locked the database", ""},
    {SQLITE_READONLY, ERR_DENIED, "the database cannot be written",
     "check owner and mode of carrel.db"},
    {SQLITE_PERM, ERR_DENIED, "the database cannot be opened", "check owner and mode of carrel.db"},
    {SQLITE_CANTOPEN, ERR_DENIED, "the database cannot be opened",
     "check owner and mode of carrel.db"},
    {SQLITE_CORRUPT, ERR_INVALID, "the database is damaged",
     "restore carrel.db from a backup, or move carrel.db* away to start without machines"},
    {SQLITE_NOTADB, ERR_INVALID, "carrel.db is not a database",
     "restore carrel.db from a backup, or move carrel.db* away to start without machines"},
    {SQLITE_IOERR, ERR_INTERNAL, "the disk failed", "read the kernel's log (dmesg)"},
    {SQLITE_CONSTRAINT_UNIQUE, ERR_EXISTS, "a row with this key already exists", ""},
    {SQLITE_CONSTRAINT_PRIMARYKEY, ERR_EXISTS, "a row with this key already exists", ""},
    {SQLITE_CONSTRAINT_FOREIGNKEY, ERR_NOT_FOUND, "the row refers to a row that does not exist",
     ""},
};

/* Returns the errno of an I/O error. SQLite keeps the errno of a failed write with its log file. */
static int sqlite_errno(sqlite3 *db) {
    sqlite3_file *log = NULL;
    int number = 0;
    if (sqlite3_extended_errcode(db) == SQLITE_IOERR_WRITE &&
        sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log) == SQLITE_OK && log &&
        log->pMethods)
        log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &number);
    return number ? number : sqlite3_system_errno(db);
}

/*
 * Recognizes every full disk. SQLite does so only for ENOSPC from write(), not for quotas and its
 * shared-memory file.
 */
static int sqlite_code(sqlite3 *db, int code) {
    int number = db && (code & 0xff) == SQLITE_IOERR ? sqlite_errno(db) : 0;
    return number == ENOSPC || number == EDQUOT ? SQLITE_FULL : code;
}

int err_sqlite(struct err *err, sqlite3 *db, int code, const char *what) {
    int extended = db ? sqlite3_extended_errcode(db) : code;
    code = sqlite_code(db, code);
    if ((extended & 0xff) != (code & 0xff))
        extended = code;
    for (size_t i = 0; i < sizeof(sqlite_errors) / sizeof(*sqlite_errors); i++)
        if (sqlite_errors[i].code == extended || sqlite_errors[i].code == (extended & 0xff)) {
            err_set(err, sqlite_errors[i].to, "%s: %s", what, sqlite_errors[i].text);
            return err_remedy(err, "%s", sqlite_errors[i].remedy);
        }
    return err_set(err, ERR_INTERNAL, "%s: %s (%d)", what,
                   db ? sqlite3_errmsg(db) : sqlite3_errstr(code), extended);
}

/* ---- Names ---- */

const char *names_get(const struct names *n, int value) {
    return value > 0 && value < n->count ? n->names[value] : NULL;
}

int names_parse(const struct names *n, const char *text, int *ret, struct err *err) {
    struct buf all DEFER(buf_done) = BUF(sizeof(err->remedy));
    for (int i = 1; i < n->count; i++) {
        if (strcmp(text, n->names[i]) == 0) {
            *ret = i;
            return 0;
        }
        (void)!buf_addf(&all, " %s", n->names[i]);
    }
    err_set(err, ERR_INVALID, "unknown %s '%.40s'", n->what, text);
    return err_remedy(err, "use one of:%s", all.data ? all.data : "");
}

/* ---- Queries ---- */

static int sql_prepare(struct store *s, enum statement id, struct err *err) {
    struct buf sql DEFER(buf_done) = BUF(8192);
    if (!statement_text(id, &sql))
        return err_set(err, ERR_LIMIT, "cannot prepare an SQL statement: out of memory");
    int rc = sqlite3_prepare_v3(s->db, sql.data, (int)sql.len, SQLITE_PREPARE_PERSISTENT,
                                &s->statements[id], NULL);
    return rc == SQLITE_OK ? 0 : err_sqlite(err, s->db, rc, "cannot prepare an SQL statement");
}

int query_start(struct query *q, struct store *s, enum statement id, struct err *err) {
    if (!s->statements[id] && sql_prepare(s, id, err) < 0)
        return -1;
    sqlite3_stmt *stmt = s->statements[id];
    if (!sqlite3_stmt_readonly(stmt) && s->flusher && flusher_check(s->flusher, err) < 0)
        return -1;
    *q = (struct query){s, stmt};
    return 0;
}

/* Resets the statement, so that no read transaction stays open, and releases bound texts. */
void query_done(struct query *q) {
    if (!q->stmt)
        return;
    sqlite3_reset(q->stmt);
    sqlite3_clear_bindings(q->stmt);
    q->stmt = NULL;
}

void query_text(struct query *q, int at, const char *text) {
    if (text)
        sqlite3_bind_text(q->stmt, at, text, -1, SQLITE_STATIC);
}

void query_i64(struct query *q, int at, int64_t value) {
    sqlite3_bind_int64(q->stmt, at, value);
}

void query_u64(struct query *q, int at, uint64_t value) {
    sqlite3_bind_int64(q->stmt, at, value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

void query_blob(struct query *q, int at, const void *bytes, size_t len) {
    sqlite3_bind_blob64(q->stmt, at, bytes, len, SQLITE_STATIC);
}

static bool all_zero(const uint8_t *bytes, size_t n) {
    while (n > 0 && bytes[n - 1] == 0)
        n--;
    return n == 0;
}

static int bind_array(struct query *q, int at, const struct column *c, const char *text,
                      struct err *err) {
    size_t n = strnlen(text, c->size);
    if (n == c->size)
        return err_set(err, ERR_LIMIT, "column '%s' is longer than %zu bytes", c->name,
                       c->size - 1);
    if (n > 0 || c->type == COL_TEXT)
        sqlite3_bind_text64(q->stmt, at, text, n, SQLITE_STATIC, SQLITE_UTF8);
    return 0;
}

static int bind_heap(struct query *q, int at, const struct column *c, const char *text,
                     struct err *err) {
    const char *empty = c->type == COL_JSON ? "{}" : "";
    size_t n = text ? strlen(text) : strlen(empty);
    if (n > STORE_JSON_MAX)
        return err_set(err, ERR_LIMIT, "column '%s' is longer than %d MiB", c->name,
                       STORE_JSON_MAX >> 20);
    if (c->type == COL_JSON && text && !json_check(text, n))
        return err_set(err, ERR_INVALID, "column '%s' is not JSON", c->name);
    sqlite3_bind_text64(q->stmt, at, text ? text : empty, n, SQLITE_STATIC, SQLITE_UTF8);
    return 0;
}

static int bind_number(struct query *q, int at, const struct column *c, const void *from,
                       struct err *err) {
    uint64_t wide = 0;
    uint32_t narrow = 0;
    bool is_wide = c->type != COL_U32 && c->type != COL_ENUM;
    memcpy(is_wide ? (void *)&wide : &narrow, from, is_wide ? sizeof(wide) : sizeof(narrow));
    uint64_t value = is_wide ? wide : narrow;
    if ((c->type == COL_U64 && value > STORE_NUMBER_MAX) ||
        (c->type == COL_ENUM && (value == 0 || value > c->size)))
        return err_set(err, ERR_INVALID, "column '%s' cannot have the value %llu", c->name,
                       (unsigned long long)value);
    if (c->type != COL_UID || (int64_t)value >= 0)
        sqlite3_bind_int64(q->stmt, at, (int64_t)value);
    return 0;
}

static int bind_column(struct query *q, int at, const struct column *c, const void *from,
                       struct err *err) {
    const char *heap;
    switch (c->type) {
    case COL_TEXT:
    case COL_NAME:
        return bind_array(q, at, c, from, err);
    case COL_HEAP:
    case COL_JSON:
        memcpy(&heap, from, sizeof(heap));
        return bind_heap(q, at, c, heap, err);
    case COL_HASH:
        if (!all_zero(from, SHA256_BYTES))
            query_blob(q, at, from, SHA256_BYTES);
        return 0;
    case COL_U64:
    case COL_U32:
    case COL_I64:
    case COL_ENUM:
    case COL_BITS:
    case COL_UID:
        break;
    }
    return bind_number(q, at, c, from, err);
}

/* A statement need not use every column. SQLite refuses parameters that it does not have. */
int query_bind(struct query *q, const struct table *table, const void *row, struct err *err) {
    int most = sqlite3_bind_parameter_count(q->stmt);
    for (size_t i = 0; i < table->count && (int)i < most; i++) {
        const struct column *c = &table->columns[i];
        if (bind_column(q, (int)i + 1, c, (const char *)row + c->offset, err) < 0)
            return err_wrap(err, "cannot write a row of table '%s'", table->name);
    }
    return 0;
}

void store_broken(struct store *s, const struct err *why) {
    struct err err = *why;
    if (s->flusher) {
        flusher_fail(s->flusher, why);
        flusher_check(s->flusher, &err); /* adds the remedy to err */
    }
    if (s->broken)
        s->broken(&err);
}

/*
 * Sets the error of a failed statement. After a disk error the contents of SQLite's log are
 * unknown: the next start of the daemon recovers the log.
 */
static int query_failed(struct query *q, int code, struct err *err) {
    struct store *s = q->store;
    bool writes = !sqlite3_stmt_readonly(q->stmt) || q->stmt == s->statements[STMT_COMMIT];
    struct err why;
    err_sqlite(&why, s->db, code, "cannot use the database");
    code = sqlite_code(s->db, code) & 0xff;
    if (writes)
        s->full = code == SQLITE_FULL;
    if (writes && code == SQLITE_IOERR)
        store_broken(s, &why);
    if (err)
        *err = why;
    return -1;
}

int query_step(struct query *q, struct err *err) {
    int rc = sqlite3_step(q->stmt);
    if (rc == SQLITE_ROW)
        return 1;
    return rc == SQLITE_DONE ? 0 : query_failed(q, rc, err);
}

int query_run(struct query *q, size_t *ret_changed, struct err *err) {
    int got = query_step(q, err);
    assert(got <= 0);
    if (got < 0)
        return -1;
    if (ret_changed)
        *ret_changed = (size_t)sqlite3_changes64(q->store->db);
    return 0;
}

/* ---- Reading rows ---- */

static bool read_array(sqlite3_stmt *stmt, int at, const struct column *c, char *to) {
    const unsigned char *text = sqlite3_column_text(stmt, at);
    size_t n = (size_t)sqlite3_column_bytes(stmt, at);
    if (!text)
        n = 0;
    if (n >= c->size || (n > 0 && memchr(text, 0, n)))
        return false;
    if (n > 0)
        memcpy(to, text, n);
    to[n] = '\0';
    return true;
}

static bool read_heap(sqlite3_stmt *stmt, int at, void *to) {
    const unsigned char *text = sqlite3_column_text(stmt, at);
    size_t n = (size_t)sqlite3_column_bytes(stmt, at);
    if (!text || n > STORE_JSON_MAX || memchr(text, 0, n))
        return false;
    char *copy = malloc(n + 1);
    if (!copy)
        return false;
    memcpy(copy, text, n);
    copy[n] = '\0';
    memcpy(to, &copy, sizeof(copy));
    return true;
}

static bool read_hash(sqlite3_stmt *stmt, int at, void *to) {
    const void *bytes = sqlite3_column_blob(stmt, at);
    int n = sqlite3_column_bytes(stmt, at);
    if (n != 0 && n != SHA256_BYTES)
        return false;
    if (n)
        memcpy(to, bytes, SHA256_BYTES);
    return true;
}

static bool sql_read_number(sqlite3_stmt *stmt, int at, const struct column *c, void *to) {
    int64_t value = sqlite3_column_int64(stmt, at);
    if (c->type == COL_UID && sqlite3_column_type(stmt, at) == SQLITE_NULL)
        value = -1;
    if (c->type == COL_U32 || c->type == COL_ENUM) {
        uint32_t narrow = (uint32_t)value;
        memcpy(to, &narrow, sizeof(narrow));
        return value == narrow && (c->type == COL_U32 || (narrow > 0 && narrow <= c->size));
    }
    memcpy(to, &value, sizeof(value));
    return c->type != COL_U64 || value >= 0;
}

static bool read_column(sqlite3_stmt *stmt, int at, const struct column *c, void *to) {
    switch (c->type) {
    case COL_TEXT:
    case COL_NAME:
        return read_array(stmt, at, c, to);
    case COL_HEAP:
    case COL_JSON:
        return read_heap(stmt, at, to);
    case COL_HASH:
        return read_hash(stmt, at, to);
    case COL_U64:
    case COL_U32:
    case COL_I64:
    case COL_ENUM:
    case COL_BITS:
    case COL_UID:
        break;
    }
    return sql_read_number(stmt, at, c, to);
}

void row_done(const struct table *table, void *row) {
    for (size_t i = 0; i < table->count; i++) {
        const struct column *c = &table->columns[i];
        char *heap, *none = NULL;
        if (c->type != COL_HEAP && c->type != COL_JSON)
            continue;
        memcpy(&heap, (char *)row + c->offset, sizeof(heap));
        free(heap);
        memcpy((char *)row + c->offset, &none, sizeof(none));
    }
}

void rows_free(const struct table *table, void *rows, size_t count) {
    for (size_t i = 0; i < count; i++)
        row_done(table, (char *)rows + i * table->row_size);
    free(rows);
}

int query_read(struct query *q, const struct table *table, void *ret, struct err *err) {
    memset(ret, 0, table->row_size);
    for (size_t i = 0; i < table->count; i++) {
        const struct column *c = &table->columns[i];
        if (read_column(q->stmt, (int)i, c, (char *)ret + c->offset))
            continue;
        row_done(table, ret);
        err_set(err, ERR_INTERNAL, "a row of table '%s' is damaged: column '%s' is out of range",
                table->name, c->name);
        return err_remedy(err, "restore carrel.db from a backup");
    }
    return 0;
}

int query_one(struct query *q, const struct table *table, void *ret, const char *what,
              const char *which, struct err *err) {
    int got = query_step(q, err);
    if (got == 0)
        return err_set(err, ERR_NOT_FOUND, "%s '%.80s' does not exist", what, which);
    return got < 0 ? -1 : query_read(q, table, ret, err);
}

int query_all(struct query *q, const struct table *table, void **ret, size_t *ret_count,
              struct err *err) {
    char *rows = NULL;
    size_t count = 0, room = 0;
    int got;
    while ((got = query_step(q, err)) == 1) {
        if (count == room) {
            room = room ? 2 * room : 16;
            char *more = realloc(rows, room * table->row_size);
            if (!more) {
                got = err_set(err, ERR_LIMIT, "cannot read rows of the database: out of memory");
                break;
            }
            rows = more;
        }
        if (query_read(q, table, rows + count * table->row_size, err) < 0) {
            got = -1;
            break;
        }
        count++;
    }
    if (got < 0) {
        rows_free(table, rows, count);
        return -1;
    }
    *ret = rows;
    *ret_count = count;
    return 0;
}

int idempotency_check(struct query *q, const uint8_t hash[SHA256_BYTES], const char *key,
                      char ret_id[ID_SIZE], struct err *err) {
    static const struct column id = {"id", COL_TEXT, 0, ID_SIZE};
    uint8_t earlier[SHA256_BYTES] = {0};
    int got = query_step(q, err);
    if (got <= 0)
        return got;
    if (!read_array(q->stmt, 0, &id, ret_id) || !read_hash(q->stmt, 1, earlier))
        return err_set(err, ERR_INTERNAL, "the database row with idempotency key '%s' is damaged",
                       key);
    if (memcmp(earlier, hash, sizeof(earlier)) == 0)
        return 1;
    ret_id[0] = '\0';
    err_set(err, ERR_INVALID, "idempotency key '%s' was used with another request", key);
    return err_remedy(err, "use a new key for a new request");
}
