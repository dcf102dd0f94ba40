/*
 * Synced before acknowledged: at each point where the store, the journal or kept output says that
 * something is safe, nothing of it may be unsynced. Only what the first thread writes is noted: the
 * store's own thread syncs whenever it likes.
 */
#include "tests/unit/unit.h"

#include <sqlite3.h>

#include "base/defer.h"
#include "base/secret.h"
#include "base/wire/outlog.h"
#include "io/outlog_fd.h"
#include "store/events.h"
#include "store/owners.h"
#include "store/schema.h"
#include "store/secrets.h"
#include "tests/sync_record.h"
#include "tests/unit/keeping.h"
#include "tests/unit/scratch.h"
#include "tests/unit/stores.h"

/* ---- the store ---- */

/* What may be lost: a lock, room that is only held, and what SQLite makes anew. */
static bool may_be_lost(const char *path) {
    static const char *const names[] = {"/carrel.lock", "/ballast", "/carrel.db-shm"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strstr(path, names[i]))
            return true;
    return false;
}

/* Everything of a store, right behind what it acknowledged. */
static void store_is_synced(void) {
    for (size_t i = 0; i < sync_seen.count; i++)
        if (!may_be_lost(sync_seen.files[i].path))
            fail_msg("'%s' is not on the disk", sync_seen.files[i].path);
    assert_string_equal(sync_seen.early, "");
}

static struct store *open_store(const struct scratch *dir, uint64_t segment_bytes) {
    sync_forget();
    return unit_store(dir->path, segment_bytes);
}

static void a_flush_leaves_nothing_of_the_database_unsynced(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct owner_row owner = {.name = "ann", .uid = 1000};
    struct store *s = open_store(&dir, 0);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(store_owner_put(s, &owner, NULL), 0);
        assert_int_equal(store_flush(s, NULL), 0);
        store_is_synced();
    }
    store_close(s);
}

/* Segments of a few records each: those that ended are synced too, and so is their folder. */
static void a_flush_leaves_nothing_of_the_journal_unsynced(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct journal_record record = {.kind = JOURNAL_NOTE, .verb = "test"};
    struct store *s = open_store(&dir, 600);
    char path[128];
    for (int i = 1; i < 40; i++) {
        assert_int_equal(store_log(s, &record, NULL, NULL), 0);
        if (i % 5)
            continue;
        assert_int_equal(store_flush(s, NULL), 0);
        store_is_synced();
    }
    assert_int_equal(access(scratch_file(&dir, "journal/00000005.log", path), F_OK), 0);
    store_close(s);
}

/* More segments in one go than the list of those that wait is long. */
static void nor_of_more_segments_than_can_wait(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct journal_record record = {.kind = JOURNAL_NOTE, .verb = "test"};
    struct store *s = open_store(&dir, 600);
    char path[128];
    for (int i = 1; i < 400; i++)
        assert_int_equal(store_log(s, &record, NULL, NULL), 0);
    assert_int_equal(store_flush(s, NULL), 0);
    store_is_synced();
    assert_int_equal(access(scratch_file(&dir, "journal/00000070.log", path), F_OK), 0);
    store_close(s);
}

/* As an earlier Carrel left it: the copy is whole before it has its name. */
static void the_copy_before_a_migration_is_on_the_disk(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    char path[128], name[48];
    sqlite3 *db;
    assert_int_equal(sqlite3_open(scratch_file(&dir, "carrel.db", path), &db), SQLITE_OK);
    assert_int_equal(schema_migrate(db, schema_steps, schema_version - 1, NULL), 0);
    sqlite3_close(db);
    struct store *s = open_store(&dir, 0);
    assert_int_equal(store_flush(s, NULL), 0);
    store_is_synced();
    snprintf(name, sizeof(name), "carrel.db.v%zu", schema_version - 1);
    assert_int_equal(access(scratch_file(&dir, name, path), F_OK), 0);
    store_close(s);
}

/* The key is on the disk before anything is sealed with it. */
static void a_secret_and_its_key_are_on_the_disk(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = open_store(&dir, 0);
    char path[128];
    struct owner_row owner = {.name = "ann", .uid = 1000};
    struct secret *value = secret_new("word", 4);
    assert_int_equal(store_owner_put(s, &owner, NULL), 0);
    assert_int_equal(store_secret_put(s, "ann", "KEY", value, 5, NULL), 0);
    secret_free(value);
    assert_int_equal(store_flush(s, NULL), 0);
    store_is_synced();
    assert_int_equal(access(scratch_file(&dir, "secrets.key", path), F_OK), 0);
    store_close(s);
}

/* The control: a write, a new name and a name that went are noted, and not synced by themselves. */
static void a_write_is_noted(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    char path[128];
    int top DEFER_CLOSE = scratch_open(&dir);
    int fd DEFER_CLOSE = open(scratch_file(&dir, "file", path), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_string_equal(sync_unsynced(dir.path), path);
    assert_int_equal(fsync(fd), 0);
    assert_string_equal(sync_unsynced(dir.path), dir.path);
    assert_int_equal(fsync(top), 0);
    assert_null(sync_unsynced(dir.path));
    assert_int_equal(write(fd, "x", 1), 1);
    assert_string_equal(sync_unsynced(dir.path), path);
    assert_int_equal(renameat(top, "file", top, "file2"), 0);
    assert_string_equal(sync_seen.early, path);
    sync_forget();
    assert_int_equal(unlinkat(top, "file2", 0), 0);
    assert_string_equal(sync_unsynced(dir.path), dir.path);
    assert_int_equal(syncfs(top), 0);
    assert_null(sync_unsynced(dir.path));
}

/* ---- kept output ---- */

static void output_is_synced_before_the_numbers_that_promise_it(void **state) {
    (void)state;
    const struct outlog_caps caps = {{1 << 20, 1 << 16}, {1 << 20, 1 << 16}};
    struct keeping k DEFER(keeping_done) = keeping_of(&caps);
    char text[5000];
    struct stat st;
    memset(text, 'x', sizeof(text));
    assert_int_equal(fstat(k.file, &st), 0);
    for (int round = 1; round < 4; round++) {
        outlog_put(&k.writer, 0, text, sizeof(text));
        sync_seen.head_of = st.st_ino;
        sync_seen.head_early = true;
        keeping_keep(&k);
        assert_int_equal(k.done.produced[0], round * sizeof(text));
        assert_null(sync_unsynced(k.path));
        assert_false(sync_seen.head_early);
    }
}

/* Its bytes would else be read as older ones after a power cut: those that they took the place of.
 */
static void kept_output_is_overwritten_when_it_is_given_up_on_the_disk(void **state) {
    (void)state;
    const struct outlog_caps caps = {{1 << 12, 1 << 12}, {1 << 13, 1 << 13}};
    struct keeping k DEFER(keeping_done) = keeping_of(&caps);
    char text[5000];
    struct stat st;
    memset(text, 'x', sizeof(text));
    assert_int_equal(fstat(k.file, &st), 0);
    for (int round = 0; round < 12; round++) {
        outlog_put(&k.writer, round % 2, text, sizeof(text));
        sync_seen.head_of = st.st_ino;
        sync_seen.rest_early = false;
        keeping_keep(&k);
        if (k.done.produced[round % 2] > caps.head[0] + caps.tail[0])
            assert_false(sync_seen.rest_early);
    }
    assert_true(k.done.produced[0] > caps.head[0] + caps.tail[0]);
    sync_seen.head_of = 0;
}

UNIT_MAIN(cmocka_unit_test(a_write_is_noted),
          cmocka_unit_test(a_flush_leaves_nothing_of_the_database_unsynced),
          cmocka_unit_test(a_flush_leaves_nothing_of_the_journal_unsynced),
          cmocka_unit_test(nor_of_more_segments_than_can_wait),
          cmocka_unit_test(the_copy_before_a_migration_is_on_the_disk),
          cmocka_unit_test(a_secret_and_its_key_are_on_the_disk),
          cmocka_unit_test(output_is_synced_before_the_numbers_that_promise_it),
          cmocka_unit_test(kept_output_is_overwritten_when_it_is_given_up_on_the_disk))
