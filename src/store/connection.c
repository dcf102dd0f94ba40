#include "store/connection.h"

#include <time.h>

#include "store/store.h"

enum { WAIT_STEP_US = 100, WAIT_MOST_US = 10 * 1000 * 1000 };

/*
 * Waits for the database lock in short intervals: the other connection holds the lock for
 * microseconds or one disk sync.
 */
static int wait_for_lock(void *arg, int tries) {
    (void)arg;
    if (tries > WAIT_MOST_US / WAIT_STEP_US)
        return 0;
    nanosleep(&(struct timespec){.tv_nsec = WAIT_STEP_US * 1000l}, NULL);
    return 1;
}

static const struct {
    int id;
    int value;
} limits[] = {
    {SQLITE_LIMIT_LENGTH, 4 << 20},    {SQLITE_LIMIT_SQL_LENGTH, 64 << 10},
    {SQLITE_LIMIT_COLUMN, 64},         {SQLITE_LIMIT_EXPR_DEPTH, 64},
    {SQLITE_LIMIT_ATTACHED, 0},        {SQLITE_LIMIT_VARIABLE_NUMBER, 64},
    {SQLITE_LIMIT_TRIGGER_DEPTH, 8},   {SQLITE_LIMIT_WORKER_THREADS, 0},
    {SQLITE_LIMIT_FUNCTION_ARG, 8},    {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 64},
    {SQLITE_LIMIT_COMPOUND_SELECT, 8},
};

/*
 * The database file is not trusted: its schema may not call functions, and its cells are checked.
 * Pages are small because a commit writes whole pages: this halves the bytes for the same rows.
 */
static const char pragmas[] = "PRAGMA page_size = 2048;"
                              "PRAGMA trusted_schema = OFF;"
                              "PRAGMA cell_size_check = ON;"
                              "PRAGMA mmap_size = 0;"
                              "PRAGMA journal_mode = WAL;"
                              "PRAGMA synchronous = NORMAL;"
                              "PRAGMA foreign_keys = ON;"
                              "PRAGMA wal_autocheckpoint = 0;"
                              "PRAGMA journal_size_limit = 8388608;"
                              "PRAGMA cache_size = -8192;"
                              "PRAGMA temp_store = MEMORY;";

int connection_open(const char *path, sqlite3 **ret, struct err *err) {
    sqlite3 *db = NULL;
    int rc = sqlite3_open_v2(
        path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_extended_result_codes(db, 1);
        sqlite3_busy_handler(db, wait_for_lock, NULL);
        sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
        for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++)
            sqlite3_limit(db, limits[i].id, limits[i].value);
        rc = sqlite3_exec(db, pragmas, NULL, NULL, NULL);
    }
    if (rc != SQLITE_OK) {
        err_sqlite(err, db, rc, "cannot open the database");
        sqlite3_close(db);
        return -1;
    }
    *ret = db;
    return 0;
}
