/*
 * carrel-sqlite: copies databases of an owner, and compares the copies of machines with them.
 *
 *   copy FILE   writes a consistent copy of a database to standard output; run as its owner
 *   diff        prints the diff of the databases at descriptors 3 and 4, where descriptor 5 is the
 *               log of the second; confines itself before it interprets them
 *   freeze      prints the same diff, and writes the second database, with its log applied, to
 *               descriptor 6; fails if it is damaged
 *
 * An error is a line on standard error.
 */
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "grant/sqlite/confine.h"
#include "grant/sqlite/diff.h"
#include "grant/sqlite/wal.h"

enum {
    BEFORE = 3,
    AFTER,
    AFTER_LOG,
    FROZEN,
    IMAGE_MAX = 512 << 20,
    TEXT_MAX = 64 << 20,
    BUSY_MS = 5000
};

static int complain(const char *why) {
    (void)(write_all(2, why, strlen(why)) == 0 && write_all(2, "\n", 1));
    return 1;
}

/* ---- copy ---- */

static int main_copy(const char *path) {
    sqlite3 *db = NULL;
    sqlite3_int64 n = 0;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK)
        return complain(sqlite3_errmsg(db));
    sqlite3_busy_timeout(db, BUSY_MS);
    /* This query fails if the file is not a database or is locked. */
    if (sqlite3_exec(db, "BEGIN; SELECT count(*) FROM sqlite_schema", NULL, NULL, NULL) !=
        SQLITE_OK)
        return complain(sqlite3_errmsg(db));
    unsigned char *bytes = sqlite3_serialize(db, "main", &n, 0);
    if ((!bytes && n) || n > IMAGE_MAX)
        return complain("the SQLite database is larger than 512 MiB, or memory is exhausted");
    int r = write_all(1, bytes, (size_t)n);
    sqlite3_free(bytes);
    sqlite3_close(db);
    return r < 0 ? complain(strerror(-r)) : 0;
}

/* ---- diff ---- */

static bool read_image(int fd, struct buf *ret) {
    char bytes[65536];
    ssize_t n;
    while ((n = read(fd, bytes, sizeof(bytes))) > 0)
        if (!buf_add(ret, bytes, (size_t)n))
            return false;
    return n == 0;
}

/* Writes the database with the journal mode of the owner's database. */
static int write_frozen(struct buf *image, const char form[2]) {
    memcpy(image->data + SQLITE_FORM, form, 2); /* write-ahead log or rollback journal */
    int r = write_all(FROZEN, image->data, image->len);
    wal_settle(image);
    return r;
}

static int diff(bool freezes) {
    struct buf before DEFER(buf_done) = BUF(IMAGE_MAX), after DEFER(buf_done) = BUF(IMAGE_MAX);
    struct buf log DEFER(buf_done) = BUF(IMAGE_MAX), text DEFER(buf_done) = BUF(TEXT_MAX);
    char form[2] = {0};
    struct err err;
    if (!read_image(BEFORE, &before) || !read_image(AFTER, &after) || !read_image(AFTER_LOG, &log))
        return complain("an SQLite database is larger than 512 MiB or cannot be read");
    sqlite3_initialize();
    if (sqlite_confine() < 0)
        return complain("this kernel cannot confine carrel-sqlite, so it reads no database");
    if (wal_apply(&after, (const uint8_t *)(log.data ? log.data : ""), log.len) < 0)
        return complain("the SQLite database is larger than 512 MiB");
    if (before.len >= SQLITE_HEAD)
        memcpy(form, before.data + SQLITE_FORM, sizeof(form));
    if (!wal_settle(&before) || !wal_settle(&after))
        return complain("the machine's file is not an SQLite database any more");
    int r = freezes ? write_frozen(&after, form) : 0;
    if (r < 0)
        return complain(strerror(-r));
    if (sqlite_diff(&before, &after, freezes, &text, &err) < 0)
        return complain(err.text);
    return write_all(1, text.data ? text.data : "", text.len) < 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "copy") == 0)
        return main_copy(argv[2]);
    if (argc == 2 && strcmp(argv[1], "diff") == 0)
        return diff(false);
    if (argc == 2 && strcmp(argv[1], "freeze") == 0)
        return diff(true);
    return complain("usage: carrel-sqlite copy FILE | diff | freeze");
}
