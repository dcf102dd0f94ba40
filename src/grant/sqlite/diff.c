#include "grant/sqlite/diff.h"

#include <sqlite3.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"

enum { SQL_MAX = 1 << 20, STEPS = 1 << 16, STEPS_MAX = 40000 };

struct diff {
    sqlite3 *db;
    struct buf *out;
    unsigned long steps;
};

static void db_closep(sqlite3 **db) {
    sqlite3_close(*db);
}

static void stmt_freep(sqlite3_stmt **stmt) {
    sqlite3_finalize(*stmt);
}

static int diff_failed(struct diff *d, struct err *err, const char *what) {
    return err_set(err, ERR_INVALID, "%s: %.200s", what, sqlite3_errmsg(d->db));
}

static int no_room(struct err *err) {
    return err_set(err, ERR_LIMIT, "the diff of the SQLite database is too large");
}

static bool diff_put(struct diff *d, const char *text) {
    return buf_add(d->out, text, strlen(text));
}

/* Authorizer: whatever the database file contains, our statements may only read and count. */
static int only_reading(void *arg, int action, const char *a, const char *b, const char *c,
                        const char *e) {
    (void)arg, (void)a, (void)c, (void)e;
    bool counts =
        action == SQLITE_FUNCTION && b && (strcmp(b, "sum") == 0 || strcmp(b, "typeof") == 0);
    return counts || action == SQLITE_SELECT || action == SQLITE_READ ? SQLITE_OK : SQLITE_DENY;
}

static int too_long(void *arg) {
    struct diff *d = arg;
    return ++d->steps > STEPS_MAX;
}

static int diff_load(struct diff *d, const char *schema, struct buf *image, struct err *err) {
    unsigned char *bytes = sqlite3_malloc64(image->len ? image->len : 1);
    if (!bytes)
        return err_set(err, ERR_LIMIT,
                       "not enough memory to compare the SQLite database: make it smaller, such as "
                       "with VACUUM");
    memcpy(bytes, image->data, image->len);
    if (sqlite3_deserialize(
            d->db, schema, bytes, (sqlite3_int64)image->len, (sqlite3_int64)image->len,
            SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_READONLY) != SQLITE_OK)
        return diff_failed(d, err, "cannot open the SQLite database");
    buf_done(image);
    return 0;
}

static void restrict_it(struct diff *d) {
    static const int off[] = {SQLITE_DBCONFIG_ENABLE_TRIGGER, SQLITE_DBCONFIG_ENABLE_VIEW,
                              SQLITE_DBCONFIG_TRUSTED_SCHEMA,
                              SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION};
    for (size_t i = 0; i < sizeof(off) / sizeof(*off); i++)
        sqlite3_db_config(d->db, off[i], 0, NULL);
    sqlite3_db_config(d->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_limit(d->db, SQLITE_LIMIT_SQL_LENGTH, SQL_MAX);
    sqlite3_limit(d->db, SQLITE_LIMIT_ATTACHED, 1);
    sqlite3_progress_handler(d->db, STEPS, too_long, d);
}

/* Checks pages, indexes and constraints of the second database. */
static int check_sound(struct diff *d, struct err *err) {
    sqlite3_stmt *s DEFER(stmt_freep) = NULL;
    if (sqlite3_prepare_v2(d->db, "PRAGMA new.integrity_check(1)", -1, &s, NULL) != SQLITE_OK ||
        sqlite3_step(s) != SQLITE_ROW)
        return diff_failed(d, err, "cannot check the SQLite database");
    const char *said = (const char *)sqlite3_column_text(s, 0);
    return said && strcmp(said, "ok") == 0
               ? 0
               : err_set(err, ERR_INVALID, "the SQLite database is damaged: %.200s",
                         said ? said : "");
}

/* ---- values as text ---- */

static bool put_blob(struct diff *d, const uint8_t *bytes, int n) {
    bool ok = diff_put(d, "x'");
    for (int i = 0; ok && i < n && i < DIFF_VALUE_SHOWN / 2; i++)
        ok = buf_addf(d->out, "%02x", bytes[i]);
    return ok && diff_put(d, n > DIFF_VALUE_SHOWN / 2 ? "...'" : "'");
}

static bool put_char(struct diff *d, const char *c) {
    return *c == '\n'   ? diff_put(d, "\\n")
           : *c == '\0' ? diff_put(d, "\\0")
                        : buf_add(d->out, c, 1);
}

static bool diff_put_text(struct diff *d, const char *text, int n) {
    bool ok = diff_put(d, "'");
    for (int i = 0; ok && i < n && i < DIFF_VALUE_SHOWN; i++)
        ok = put_char(d, text + i);
    return ok && diff_put(d, n > DIFF_VALUE_SHOWN ? "...'" : "'");
}

/* Writes a name, with line breaks escaped. */
static bool put_plain(struct diff *d, const char *text) {
    bool ok = true;
    for (; ok && *text; text++)
        ok = put_char(d, text);
    return ok;
}

static bool put_value(struct diff *d, sqlite3_stmt *s, int i) {
    switch (sqlite3_column_type(s, i)) {
    case SQLITE_NULL:
        return diff_put(d, "NULL");
    case SQLITE_BLOB:
        return put_blob(d, sqlite3_column_blob(s, i), sqlite3_column_bytes(s, i));
    case SQLITE_TEXT:
        return diff_put_text(d, (const char *)sqlite3_column_text(s, i),
                             sqlite3_column_bytes(s, i));
    default:
        return diff_put(d, (const char *)sqlite3_column_text(s, i));
    }
}

static bool put_row(struct diff *d, sqlite3_stmt *s, int columns, const char *sign) {
    bool ok = diff_put(d, sign);
    for (int i = 0; ok && i < columns; i++)
        ok = (i == 0 || diff_put(d, ", ")) && put_value(d, s, i);
    return ok && diff_put(d, "\n");
}

/* ---- rows ---- */

/*
 * Writes the rows of a query and returns their number. counted: the last column is the number of
 * equal rows that a row stands for.
 */
static long rows_of(struct diff *d, const char *sql, bool counted, const char *sign,
                    struct err *err) {
    sqlite3_stmt *s DEFER(stmt_freep) = NULL;
    long count = 0;
    sqlite3_int64 alike = 0;
    int r = sqlite3_prepare_v2(d->db, sql, -1, &s, NULL);
    while (r == SQLITE_OK || r == SQLITE_ROW) {
        r = sqlite3_step(s);
        if (r != SQLITE_ROW)
            break;
        int columns = sqlite3_column_count(s) - counted;
        alike += counted ? llabs(sqlite3_column_int64(s, columns)) - 1 : 0;
        if (++count <= DIFF_ROWS_SHOWN && !put_row(d, s, columns, sign))
            return no_room(err);
    }
    if (r != SQLITE_DONE)
        return diff_failed(d, err, "cannot read the SQLite database");
    if (count > DIFF_ROWS_SHOWN &&
        !buf_addf(d->out, "%s... %ld more\n", sign, count - DIFF_ROWS_SHOWN))
        return no_room(err);
    if (alike && !buf_addf(d->out, "%s... %lld like others\n", sign, (long long)alike))
        return no_room(err);
    return count;
}

/* The two sides of a table: schema "main" is the first database, "new" the second. */
static const struct side {
    const char *sign, *one, *other;
} sides[] = {{"- ", "main", "new"}, {"+ ", "new", "main"}};

/* alike: both sides have the table with the same definition. */
struct table {
    const char *name;
    bool has[2], alike;
};

static bool put_from(struct buf *sql, const char *what, const char *schema, const char *table) {
    char *name = sqlite3_mprintf("\"%w\".\"%w\"", schema, table);
    bool ok = name && buf_addf(sql, "SELECT %s FROM ", what) && buf_add(sql, name, strlen(name));
    sqlite3_free(name);
    return ok;
}

/* Counts visible columns: generated ones are included, the rowid is not. */
static int count_columns(struct diff *d, const struct table *t, int *ret, struct err *err) {
    sqlite3_stmt *s DEFER(stmt_freep) = NULL;
    struct buf sql DEFER(buf_done) = BUF(SQL_MAX);
    if (!put_from(&sql, "*", "main", t->name))
        return no_room(err);
    if (sqlite3_prepare_v2(d->db, sql.data, -1, &s, NULL) != SQLITE_OK)
        return diff_failed(d, err, "cannot read the SQLite database");
    *ret = sqlite3_column_count(s);
    return *ret <= DIFF_COLUMNS_MAX
               ? 0
               : err_set(err, ERR_LIMIT, "the table has more than %d columns", DIFF_COLUMNS_MAX);
}

/*
 * Writes the query for rows that one side has more often than the other. It compares values byte by
 * byte, not by the collation of the table ("a" and "A", trailing blanks), and 1 differs from 1.0.
 */
static bool put_difference(struct buf *sql, const struct table *t, const struct side *side,
                           int columns) {
    bool ok = buf_addf(sql, "WITH r(n");
    for (int i = 0; ok && i < columns; i++)
        ok = buf_addf(sql, ",c%d", i);
    ok = ok && buf_addf(sql, ") AS (") && put_from(sql, "1, *", side->one, t->name) &&
         buf_addf(sql, " UNION ALL ") && put_from(sql, "-1, *", side->other, t->name) &&
         buf_addf(sql, ") SELECT ");
    for (int i = 0; ok && i < columns; i++)
        ok = buf_addf(sql, "c%d,", i);
    ok = ok && buf_addf(sql, "sum(n) FROM r GROUP BY ");
    for (int i = 0; ok && i < columns; i++)
        ok = buf_addf(sql, "%sc%d COLLATE BINARY,typeof(c%d)", i ? "," : "", i, i);
    return ok && buf_addf(sql, " HAVING sum(n) > 0");
}

/* Writes the rows that one side has more often, or all its rows if the tables are not alike. */
static long rows_of_side(struct diff *d, const struct table *t, const struct side *side,
                         struct err *err) {
    struct buf sql DEFER(buf_done) = BUF(SQL_MAX);
    int columns = 0;
    if (t->alike && count_columns(d, t, &columns, err) < 0)
        return -1;
    if (!(t->alike ? put_difference(&sql, t, side, columns)
                   : put_from(&sql, "*", side->one, t->name)))
        return no_room(err);
    return rows_of(d, sql.data, t->alike, side->sign, err);
}

static int compare_table(struct diff *d, const struct table *t, struct err *err) {
    size_t before = d->out->len;
    long changes[2] = {0};
    if (!diff_put(d, "table ") || !put_plain(d, t->name) || !diff_put(d, "\n"))
        return no_room(err);
    for (size_t i = 0; i < 2; i++)
        if (t->has[i] && (changes[i] = rows_of_side(d, t, &sides[i], err)) < 0)
            return err_wrap(err, "table '%.60s' of the SQLite database", t->name);
    if (!changes[0] && !changes[1])
        d->out->len = before;
    return 0;
}

/* Compares ordinary tables of both sides. */
static int compare_tables(struct diff *d, struct err *err) {
    static const char sql[] =
        "SELECT a.name, 1, b.name IS NOT NULL, a.sql IS b.sql"
        " FROM main.sqlite_schema a LEFT JOIN new.sqlite_schema b"
        " ON a.name = b.name AND b.type = 'table' AND b.rootpage > 0"
        " WHERE a.type = 'table' AND a.rootpage > 0 UNION ALL "
        "SELECT b.name, 0, 1, 0 FROM new.sqlite_schema b LEFT JOIN main.sqlite_schema a"
        " ON a.name = b.name AND a.type = 'table' AND a.rootpage > 0"
        " WHERE b.type = 'table' AND b.rootpage > 0 AND a.name IS NULL LIMIT 1001";
    sqlite3_stmt *s DEFER(stmt_freep) = NULL;
    size_t count = 0;
    int r = sqlite3_prepare_v2(d->db, sql, -1, &s, NULL);
    while (r == SQLITE_OK || r == SQLITE_ROW) {
        r = sqlite3_step(s);
        if (r != SQLITE_ROW)
            break;
        const struct table t = {.name = (const char *)sqlite3_column_text(s, 0),
                                .has = {sqlite3_column_int(s, 1), sqlite3_column_int(s, 2)},
                                .alike = sqlite3_column_int(s, 3)};
        if (++count > DIFF_TABLES_MAX)
            return err_set(err, ERR_LIMIT, "the SQLite database has more than %d tables",
                           DIFF_TABLES_MAX);
        if (t.name && compare_table(d, &t, err) < 0)
            return -1;
    }
    return r == SQLITE_DONE ? 0 : diff_failed(d, err, "cannot read the SQLite database");
}

static int compare_schemas(struct diff *d, struct err *err) {
    static const char columns[] = "SELECT type, name, tbl_name, sql FROM";
    char gone[256], came[256];
    sqlite3_snprintf(sizeof(gone), gone, "%s main.sqlite_schema EXCEPT %s new.sqlite_schema",
                     columns, columns);
    sqlite3_snprintf(sizeof(came), came, "%s new.sqlite_schema EXCEPT %s main.sqlite_schema",
                     columns, columns);
    size_t before = d->out->len;
    long out = diff_put(d, "schema\n") ? rows_of(d, gone, false, "- ", err) : -1;
    long in = out < 0 ? -1 : rows_of(d, came, false, "+ ", err);
    if (in < 0)
        return -1;
    if (!out && !in)
        d->out->len = before;
    return 0;
}

/* ---- numbers that programs keep in the header of the file ---- */

static int diff_number_of(struct diff *d, const char *schema, const char *name, int *ret,
                          struct err *err) {
    sqlite3_stmt *s DEFER(stmt_freep) = NULL;
    char sql[64];
    sqlite3_snprintf(sizeof(sql), sql, "PRAGMA %s.%s", schema, name);
    if (sqlite3_prepare_v2(d->db, sql, -1, &s, NULL) != SQLITE_OK || sqlite3_step(s) != SQLITE_ROW)
        return diff_failed(d, err, "cannot read the SQLite database");
    *ret = sqlite3_column_int(s, 0);
    return 0;
}

static int compare_numbers(struct diff *d, struct err *err) {
    static const char *const names[] = {"user_version", "application_id"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        int before, after;
        if (diff_number_of(d, "main", names[i], &before, err) < 0 ||
            diff_number_of(d, "new", names[i], &after, err) < 0)
            return -1;
        if (before != after && !buf_addf(d->out, "%s\n- %d\n+ %d\n", names[i], before, after))
            return no_room(err);
    }
    return 0;
}

int sqlite_diff(struct buf *before, struct buf *after, bool sound, struct buf *ret,
                struct err *err) {
    sqlite3 *db DEFER(db_closep) = NULL;
    struct diff d = {.out = ret};
    if (sqlite3_open_v2(":memory:", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY, NULL) !=
            SQLITE_OK ||
        sqlite3_exec(db, "PRAGMA temp_store=MEMORY; ATTACH ':memory:' AS new", NULL, NULL, NULL) !=
            SQLITE_OK)
        return err_set(err, ERR_INTERNAL, "SQLite cannot be started");
    d.db = db;
    if (diff_load(&d, "main", before, err) < 0 || diff_load(&d, "new", after, err) < 0)
        return -1;
    restrict_it(&d);
    if ((sound && check_sound(&d, err) < 0) || compare_numbers(&d, err) < 0)
        return -1;
    sqlite3_set_authorizer(db, only_reading, NULL);
    return compare_schemas(&d, err) < 0 ? -1 : compare_tables(&d, err);
}
