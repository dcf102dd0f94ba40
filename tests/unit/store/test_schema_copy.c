/* The copy of the database that is kept before its tables change. */
#include "tests/unit/unit.h"

#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "store/db.h"
#include "store/schema.h"
#include "tests/unit/scratch.h"
#include "tests/unit/stores.h"

static struct err err;

static sqlite3 *open_db(const struct scratch *dir, const char *name) {
    char path[128];
    sqlite3 *db;
    assert_int_equal(sqlite3_open(scratch_file(dir, name, path), &db), SQLITE_OK);
    return db;
}

static size_t version_of(const struct scratch *dir, const char *name) {
    sqlite3 *db = open_db(dir, name);
    size_t version;
    assert_int_equal(schema_version_of(db, &version, &err), 0);
    sqlite3_close(db);
    return version;
}

static bool exists(const struct scratch *dir, const char *name) {
    char path[128];
    return access(scratch_file(dir, name, path), F_OK) == 0;
}

/* A store as an earlier Carrel left it, with an owner in it. */
static void make_old(const struct scratch *dir, size_t version) {
    sqlite3 *db = open_db(dir, "carrel.db");
    assert_int_equal(schema_migrate(db, schema_steps, version, &err), 0);
    assert_int_equal(
        sqlite3_exec(db, "INSERT INTO meta VALUES('kept', 'as it was')", NULL, NULL, NULL),
        SQLITE_OK);
    sqlite3_close(db);
}

static void an_older_database_is_copied_then_migrated(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    char name[48], path[128];
    struct stat st;
    size_t old = schema_version - 1;
    make_old(&dir, old);
    snprintf(name, sizeof(name), "carrel.db.v%zu", old);
    store_close(unit_store(dir.path, 0));
    assert_int_equal(version_of(&dir, "carrel.db"), schema_version);
    assert_true(exists(&dir, name));
    assert_int_equal(version_of(&dir, name), old);
    assert_int_equal(stat(scratch_file(&dir, name, path), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    sqlite3 *db = open_db(&dir, name);
    assert_int_equal(schema_check(db, schema_steps, old, &err), 0);
    sqlite3_stmt *stmt;
    assert_int_equal(
        sqlite3_prepare_v2(db, "SELECT value FROM meta WHERE name = 'kept'", -1, &stmt, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    assert_string_equal(sqlite3_column_text(stmt, 0), "as it was");
    sqlite3_finalize(stmt);
    sqlite3_close(db);
}

static void one_copy_is_kept(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    char name[48];
    make_old(&dir, schema_version - 2);
    char path[128];
    FILE *f = fopen(scratch_file(&dir, "carrel.db.v1", path), "w");
    assert_non_null(f);
    fclose(f);
    store_close(unit_store(dir.path, 0));
    snprintf(name, sizeof(name), "carrel.db.v%zu", schema_version - 2);
    assert_true(exists(&dir, name) && !exists(&dir, "carrel.db.v1"));
    assert_false(exists(&dir, "carrel.db.v.draft"));
}

static void a_database_that_stays_as_it_is_is_not_copied(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    store_close(unit_store(dir.path, 0)); /* a new one */
    store_close(unit_store(dir.path, 0));
    for (size_t i = 0; i <= schema_version; i++) {
        char name[48];
        snprintf(name, sizeof(name), "carrel.db.v%zu", i);
        assert_false(exists(&dir, name));
    }
}

static void without_its_copy_nothing_changes(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store_options options = {.home = dir.path};
    struct store *s;
    char name[48], path[128];
    make_old(&dir, schema_version - 1);
    /* A folder in its place cannot be renamed over. */
    snprintf(name, sizeof(name), "carrel.db.v%zu", schema_version - 1);
    assert_int_equal(mkdir(scratch_file(&dir, name, path), 0700), 0);
    assert_int_equal(store_open(&options, &s, &err), -1);
    assert_non_null(strstr(err.text, "cannot back up the database"));
    assert_true(err.remedy[0]);
    assert_int_equal(version_of(&dir, "carrel.db"), schema_version - 1);
}

UNIT_MAIN(cmocka_unit_test(an_older_database_is_copied_then_migrated),
          cmocka_unit_test(one_copy_is_kept),
          cmocka_unit_test(a_database_that_stays_as_it_is_is_not_copied),
          cmocka_unit_test(without_its_copy_nothing_changes))
