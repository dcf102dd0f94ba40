#include "tests/unit/unit.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "grant/sqlite/diff.h"
#include "grant/sqlite/wal.h"
#include "tests/unit/scratch.h"

enum { ROOM = 4 << 20 };

static void load(const char *path, struct buf *ret) {
    char bytes[65536];
    ssize_t n;
    int fd DEFER_CLOSE = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    while ((n = read(fd, bytes, sizeof(bytes))) > 0)
        assert_true(buf_add(ret, bytes, (size_t)n));
}

/* A database with one row in its file and another in its log, as one that nobody closed. */
static void make(const char *path, struct buf *db, struct buf *log) {
    char wal[400];
    sqlite3 *c;
    assert_int_equal(sqlite3_open(path, &c), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(c,
                     "PRAGMA journal_mode=wal; CREATE TABLE t(a INTEGER PRIMARY KEY, b);"
                     "INSERT INTO t VALUES(1, 'old'); PRAGMA wal_checkpoint(TRUNCATE);"
                     "INSERT INTO t VALUES(2, 'new')",
                     NULL, NULL, NULL),
        SQLITE_OK);
    snprintf(wal, sizeof(wal), "%s-wal", path);
    load(path, db);
    load(wal, log);
    sqlite3_close(c);
}

static void copy(const struct buf *from, struct buf *to) {
    assert_true(buf_add(to, from->data, from->len));
}

/* What differs from the file alone once so many bytes of the log were applied. */
static void expect(const struct buf *db, const struct buf *log, size_t n, const char *expected) {
    struct buf before DEFER(buf_done) = BUF(ROOM), after DEFER(buf_done) = BUF(ROOM);
    struct buf text DEFER(buf_done) = BUF(ROOM);
    struct err err;
    copy(db, &before);
    copy(db, &after);
    assert_true(wal_apply(&after, (const uint8_t *)log->data, n) >= 0);
    assert_true(wal_settle(&before) && wal_settle(&after));
    assert_int_equal(sqlite_diff(&before, &after, true, &text, &err), 0);
    assert_string_equal(text.len ? text.data : "", expected);
}

static void what_is_committed_in_the_log_counts_and_nothing_else(void **state) {
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct buf db DEFER(buf_done) = BUF(ROOM), log DEFER(buf_done) = BUF(ROOM);
    char path[300];
    (void)state;
    snprintf(path, sizeof(path), "%s/x.db", dir.path);
    make(path, &db, &log);
    expect(&db, &log, log.len, "table t\n+ 2, 'new'\n");
    for (size_t n = 0; n < log.len; n += 97)
        expect(&db, &log, n, "");
    for (size_t at = 0; at < log.len; at += 501) { /* a turned bit ends the log before its frame */
        log.data[at] ^= 4;
        if (at < 12 || at >= 16) /* the number of the checkpoint is part of the sum alone */
            expect(&db, &log, log.len, "");
        log.data[at] ^= 4;
    }
}

static void a_log_cannot_make_the_image_larger_than_its_room(void **state) {
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct buf db DEFER(buf_done) = BUF(ROOM), log DEFER(buf_done) = BUF(ROOM);
    struct buf small DEFER(buf_done) = BUF(4096);
    char path[300];
    (void)state;
    snprintf(path, sizeof(path), "%s/x.db", dir.path);
    make(path, &db, &log);
    assert_int_equal(wal_apply(&small, (const uint8_t *)log.data, log.len), -1);
    assert_false(wal_settle(&(struct buf){0}));
}

UNIT_MAIN(cmocka_unit_test(what_is_committed_in_the_log_counts_and_nothing_else),
          cmocka_unit_test(a_log_cannot_make_the_image_larger_than_its_room))
