#include "store/db.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fdio.h"
#include "base/fs/fs_room.h"
#include "base/fs/lockfile.h"
#include "store/connection.h"
#include "store/schema.h"
#include "store/store.h"

enum {
    PATH_SIZE = 4000,
    QUICK_CHECK_BYTES = 16 << 20,
};

/* ---- The directory of the store ---- */

static int db_path_of(const char *home, const char *name, char ret[PATH_SIZE], struct err *err) {
    int n = snprintf(ret, PATH_SIZE, "%s/%s", home, name);
    return n < PATH_SIZE
               ? 0
               : err_set(err, ERR_INVALID, "the path '%.60s...' of CARREL_HOME is too long", home);
}

/*
 * The lock file of the store is locked while the store is open. The kernel releases it when the
 * process ends.
 */
static int take_lock(struct store *s, const char *home, const char *run, struct err *err) {
    char path[PATH_SIZE];
    struct lock_holder holder;
    bool is_taken = false;
    if (db_path_of(home, "carrel.lock", path, err) < 0)
        return -1;
    s->lock_fd = lockfile_take(path, run ? run : "", &is_taken, &holder, err);
    if (!is_taken)
        return s->lock_fd < 0 ? -1 : 0;
    err_set(err, ERR_BUSY, "another daemon (pid %s, run directory '%s') uses the store '%s'",
            holder.pid, holder.words, home);
    return err_remedy(err, "stop that daemon, or set another CARREL_HOME");
}

/*
 * Creates the database file with mode 0600, because SQLite would use the umask. SQLite gives its
 * write-ahead log the mode of the database.
 */
static int db_make_file(const char *path, struct err *err) {
    int fd DEFER_CLOSE = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, "cannot open the database file '%s'", path);
    return S_ISREG(st.st_mode)
               ? 0
               : err_set(err, ERR_INVALID, "the database '%s' is not a regular file", path);
}

/* ---- The database ---- */

static int check_pages(sqlite3 *db, struct err *err) {
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &stmt, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    const char *text = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(stmt, 0) : NULL;
    bool good = text && strcmp(text, "ok") == 0;
    if (rc == SQLITE_ROW && !good)
        rc = SQLITE_CORRUPT;
    sqlite3_finalize(stmt);
    return good ? 0 : err_sqlite(err, NULL, rc, "cannot check the database");
}

/*
 * A large database is not checked as a whole at every start. Damage in it is found when the damaged
 * page is read.
 */
static int check_database(sqlite3 *db, const char *path, struct err *err) {
    struct stat st;
    if (stat(path, &st) < 0)
        return err_sys(err, "cannot read the size of the database file '%s'", path);
    if (st.st_size <= QUICK_CHECK_BYTES && check_pages(db, err) < 0)
        return -1;
    return schema_check(db, schema_steps, schema_version, err);
}

static int on_commit(void *arg, sqlite3 *db, const char *name, int pages) {
    struct store *s = arg;
    (void)db, (void)name;
    s->commits++;
    if (s->flusher)
        flusher_touch(s->flusher, (uint32_t)pages);
    return SQLITE_OK;
}

/*
 * Reads the journal head (the hash of all records) that was last recorded as durable. Returns 1, or
 * 0 if none was recorded.
 */
static int read_mark(sqlite3 *db, struct journal_head *ret, struct err *err) {
    sqlite3_stmt *stmt = NULL;
    int rc =
        sqlite3_prepare_v2(db, "SELECT value FROM meta WHERE name = 'journal'", -1, &stmt, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    int status = rc == SQLITE_ROW ? 1 : 0;
    if (rc == SQLITE_ROW &&
        journal_head_parse((const char *)sqlite3_column_text(stmt, 0), ret, err) < 0)
        status = -1;
    else if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        status =
            err_sqlite(err, db, rc,
                       "cannot read the hash of the last durable journal record from the database");
    sqlite3_finalize(stmt);
    return status;
}

static int open_journal(struct store *s, const struct store_options *o, struct err *err) {
    struct journal_options options = o->journal;
    struct journal_head mark;
    char path[PATH_SIZE];
    int known = read_mark(s->db, &mark, err);
    if (known < 0 || db_path_of(o->home, "journal", path, err) < 0)
        return -1;
    options.expected = known ? &mark : NULL;
    return journal_open(path, &options, &s->journal, err);
}

static int open_database(struct store *s, const char *path, struct err *err) {
    if (db_make_file(path, err) < 0 || connection_open(path, &s->db, err) < 0 ||
        schema_copy(s->db, schema_version, s->home_fd, err) < 0 ||
        schema_migrate(s->db, schema_steps, schema_version, err) < 0 ||
        check_database(s->db, path, err) < 0)
        return -1;
    sqlite3_wal_hook(s->db, on_commit, s);
    return 0;
}

int store_open(const struct store_options *o, struct store **ret, struct err *err) {
    struct store *s DEFER(store_closep) = calloc(1, sizeof(*s));
    char path[PATH_SIZE];
    if (!s)
        return err_set(err, ERR_LIMIT, "cannot open the store: out of memory");
    s->lock_fd = s->home_fd = -1;
    s->broken = o->broken;
    if (mkdir(o->home, 0700) < 0 && errno != EEXIST)
        return err_sys(err, "cannot create the store directory '%s'", o->home);
    s->home_fd = open(o->home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->home_fd < 0)
        return err_sys(err, "cannot open the store directory '%s'", o->home);
    if (db_path_of(o->home, "carrel.db", path, err) < 0 || take_lock(s, o->home, o->run, err) < 0)
        return -1;
    if (open_database(s, path, err) < 0 || store_identity_open(s, err) < 0 ||
        open_journal(s, o, err) < 0 || flusher_start(path, s->journal, &s->flusher, err) < 0)
        return err_wrap(err, "cannot open the store in '%s'", o->home);
    flusher_keep_waits_short(s->flusher, s->db);
    ballast_init(&s->ballast, s->home_fd);
    if (fsync(s->home_fd) < 0)
        return err_sys(err, "cannot sync the store directory '%s'", o->home);
    *ret = TAKE(s);
    return 0;
}

void store_close(struct store *s) {
    if (!s)
        return;
    store_rollback(s);
    for (size_t i = 0; i < STMT_COUNT; i++)
        sqlite3_finalize(s->statements[i]);
    if (s->journal)
        (void)journal_sign(s->journal, NULL);
    flusher_stop(s->flusher);
    journal_close(s->journal);
    /* Closing the last connection copies the write-ahead log into the database and deletes it. */
    sqlite3_close(s->db);
    close_fd(&s->lock_fd);
    close_fd(&s->home_fd);
    explicit_bzero(s->secrets_key, sizeof(s->secrets_key));
    free(s);
}

void store_closep(struct store **s) {
    store_close(*s);
}

/* ---- Transactions, journal, flush ---- */

static int db_run(struct store *s, enum statement id, struct err *err) {
    QUERY;
    return query_start(&q, s, id, err) < 0 ? -1 : query_run(&q, NULL, err);
}

int store_begin(struct store *s, struct err *err) {
    s->full = false;
    return db_run(s, STMT_BEGIN, err);
}

int store_commit(struct store *s, struct err *err) {
    if (db_run(s, STMT_COMMIT, err) == 0)
        return 0;
    store_rollback(s);
    return -1;
}

bool store_in_transaction(const struct store *s) {
    return !sqlite3_get_autocommit(s->db);
}

bool store_is_full(const struct store *s) {
    return s->full;
}

void store_rollback(struct store *s) {
    if (s->db && !sqlite3_get_autocommit(s->db))
        (void)db_run(s, STMT_ROLLBACK, NULL);
}

int store_log(struct store *s, const struct journal_record *record, uint64_t *ret_seq,
              struct err *err) {
    struct err why;
    if (flusher_check(s->flusher, err) < 0)
        return -1;
    if (journal_append(s->journal, record, 1, ret_seq, &why) < 0) {
        int number = journal_error(s->journal);
        s->full = number == -ENOSPC || number == -EDQUOT;
        if (number && !s->full)
            store_broken(s, &why);
        if (err)
            *err = why;
        return -1;
    }
    flusher_touch(s->flusher, 0);
    return 0;
}

void store_journal_head(struct store *s, struct journal_head *ret) {
    journal_at(s->journal, ret);
}

int store_sign(struct store *s, struct err *err) {
    int written = flusher_check(s->flusher, err) < 0 ? -1 : journal_sign(s->journal, err);
    if (written > 0) /* if no record was written, nothing has to be synced */
        flusher_touch(s->flusher, 0);
    return written < 0 ? -1 : 0;
}

int store_announce(struct store *s, const struct journal_keep *keep, uint64_t *ret_first,
                   struct err *err) {
    *ret_first = 0;
    if (flusher_check(s->flusher, err) < 0 ||
        journal_announce(s->journal, keep, ret_first, err) < 0)
        return -1;
    flusher_touch(s->flusher, 0);
    return 0;
}

int store_forget(struct store *s, uint64_t first, struct err *err) {
    return flusher_flush(s->flusher, err) < 0 ? -1 : journal_forget(s->journal, first, err);
}

/* ---- Disk space ---- */

static int say_full(struct err *err) {
    err_set(err, ERR_LIMIT, "the disk that holds CARREL_HOME is full");
    return err_remedy(err, "free disk space, or delete machines, images and volumes: carrel rm, "
                           "carrel image rm, carrel image prune, carrel volume rm");
}

bool store_dig(struct store *s) {
    return ballast_release(&s->ballast);
}

int store_admit(struct store *s, enum store_use use, struct err *err) {
    struct ballast *b = &s->ballast;
    if (use == STORE_USES)
        return b->full ? say_full(err) : 0;
    uint64_t room = ballast_room(b);
    if (room < b->bytes / 2 && ballast_release(b))
        room = ballast_room(b);
    return use == STORE_READS && room < b->bytes / 2 ? say_full(err) : 0;
}

void store_look(struct store *s) {
    ballast_look(&s->ballast);
}

void store_room(const struct store *s, struct store_room *ret) {
    const struct fs_space space = fs_space(s->home_fd);
    *ret = (struct store_room){.free_bytes = space.free_bytes,
                               .total_bytes = space.total_bytes,
                               .used_percent = fs_used_percent(&space),
                               .full = s->ballast.full};
}

int store_check(struct store *s, struct err *err) {
    return flusher_check(s->flusher, err);
}

int store_flush(struct store *s, struct err *err) {
    return flusher_flush(s->flusher, err);
}

static uint64_t pragma_number(sqlite3 *db, const char *sql) {
    sqlite3_stmt *stmt = NULL;
    uint64_t n = 0;
    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW)
        n = (uint64_t)sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return n;
}

void store_stats(struct store *s, struct store_stats *ret) {
    struct flusher_stats f;
    struct journal_head head;
    uint64_t page = pragma_number(s->db, "PRAGMA page_size");
    flusher_stats(s->flusher, &f);
    journal_at(s->journal, &head);
    *ret = (struct store_stats){
        .commits = s->commits,
        .flushes = f.flushes,
        .checkpoints = f.checkpoints,
        .wal_bytes = f.wal_pages * (page + 24),
        .db_bytes = page * pragma_number(s->db, "PRAGMA page_count"),
        .journal_seq = head.seq,
    };
}
