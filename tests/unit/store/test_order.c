/* Lists are in the order of creation, whatever the clock did, and pages leave nothing out. */
#include "tests/unit/unit.h"

#include <sqlite3.h>
#include <string.h>

#include "base/defer.h"
#include "store/execs.h"
#include "store/machines.h"
#include "store/owners.h"
#include "store/schema.h"
#include "store/store.h"
#include "tests/unit/scratch.h"

enum { COUNT = 24 };

static struct err err;

#define ok(call)                                 \
    do {                                         \
        err = (struct err){0};                   \
        if ((call) < 0)                          \
            fail_msg("%s: %s", #call, err.text); \
    } while (0)

static struct store *open_store(const struct scratch *dir) {
    struct store *s;
    struct store_options options = {.home = dir->path};
    ok(store_open(&options, &s, &err));
    return s;
}

static struct store *new_store(const struct scratch *dir) {
    struct store *s = open_store(dir);
    struct owner_row row = {.name = "ann", .uid = 1000, .created_ms = 1};
    ok(store_owner_put(s, &row, &err));
    return s;
}

static void add_machine(struct store *s, int64_t created_ms, char ret[ID_SIZE]) {
    struct machine_row row = {.owner = "ann",
                              .state = MACHINE_RUNNING,
                              .kind = "box",
                              .image = "host",
                              .created_ms = created_ms,
                              .idle_action = IDLE_PAUSE,
                              .steps = STEPS_MANUAL};
    char existing[ID_SIZE];
    snprintf(row.id, sizeof(row.id), "%s", id_new('m').text);
    ok(store_machine_add(s, &row, existing, &err));
    snprintf(ret, ID_SIZE, "%s", row.id);
}

/* All pages of `size` machines are ids[count - 1] to ids[0]. */
static void assert_pages(struct store *s, const char *owner, unsigned states, size_t size,
                         char ids[][ID_SIZE], size_t count) {
    struct machine_filter page = {.owner = owner, .states = states, .limit = size};
    size_t left = count;
    for (bool more = true; more;) {
        struct machine_list list DEFER(machine_list_done) = {0};
        ok(store_machine_list(s, &page, &list, &err));
        assert_true(list.count <= left);
        for (size_t i = 0; i < list.count; i++)
            assert_string_equal(list.rows[i].id, ids[--left]);
        page.before = list.last;
        more = list.count == size;
    }
    assert_int_equal(left, 0);
}

static void assert_order(struct store *s, char ids[][ID_SIZE], size_t count) {
    static const size_t sizes[] = {1, 5, COUNT, STORE_PAGE_MAX};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        assert_pages(s, NULL, 0, sizes[i], ids, count);
        assert_pages(s, "ann", 0, sizes[i], ids, count);
        assert_pages(s, "ann", MACHINE_STATES_ALL, sizes[i], ids, count);
    }
}

/* Ids are random: 24 of them are in the order of their creation once in 10^23. */
static void order_under(int64_t step_ms) {
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = new_store(&dir);
    char ids[COUNT][ID_SIZE];
    for (int i = 0; i < COUNT; i++) {
        if (i == COUNT / 2) {
            store_close(s);
            s = open_store(&dir);
        }
        add_machine(s, 1000000 + i * step_ms, ids[i]);
    }
    assert_order(s, ids, COUNT);
    store_close(s);
}

static void machines_are_in_order_while_the_clock_stands_still(void **state) {
    (void)state;
    order_under(0);
}

static void machines_are_in_order_while_the_clock_goes_back(void **state) {
    (void)state;
    order_under(-1000);
}

static void a_page_goes_on_after_its_last_machine_was_forgotten(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = new_store(&dir);
    char ids[4][ID_SIZE];
    size_t forgotten;
    for (int i = 0; i < 4; i++)
        add_machine(s, 5, ids[i]);
    struct machine_filter page = {.limit = 2, .states = MACHINE_STATES_ALL};
    struct machine_list first DEFER(machine_list_done) = {0}, next DEFER(machine_list_done) = {0};
    ok(store_machine_list(s, &page, &first, &err));
    assert_string_equal(first.rows[1].id, ids[2]);
    ok(store_machine_end(s, ids[2], 6, "destroyed", &err));
    ok(store_machine_trim(s, 7, 10, &forgotten, &err));
    assert_int_equal(forgotten, 1);
    page.before = first.last;
    ok(store_machine_list(s, &page, &next, &err));
    assert_int_equal(next.count, 2);
    assert_string_equal(next.rows[0].id, ids[1]);
    assert_string_equal(next.rows[1].id, ids[0]);
    store_close(s);
}

static void run_sql(sqlite3 *db, const char *sql) {
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
}

/* A page that holds nothing but a damaged row leads on to the others. */
static void a_damaged_row_does_not_end_the_pages(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = new_store(&dir);
    char ids[2][ID_SIZE];
    for (int i = 0; i < 2; i++)
        add_machine(s, 5, ids[i]);
    run_sql(s->db, "UPDATE machines SET pids = -1 WHERE number = 2");
    struct machine_filter page = {.limit = 1};
    struct machine_list first DEFER(machine_list_done) = {0}, next DEFER(machine_list_done) = {0};
    ok(store_machine_list(s, &page, &first, &err));
    assert_int_equal(first.count, 0);
    assert_int_equal(first.damaged, 1);
    page.before = first.last;
    ok(store_machine_list(s, &page, &next, &err));
    assert_int_equal(next.count, 1);
    assert_string_equal(next.rows[0].id, ids[0]);
    store_close(s);
}

static void commands_go_on_after_the_last_of_a_page_was_forgotten(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = new_store(&dir);
    char machine[ID_SIZE], existing[ID_SIZE];
    add_machine(s, 5, machine);
    for (int i = 0; i < 4; i++) {
        struct exec_row row = {
            .owner = "ann", .state = EXEC_STARTING, .created_ms = 5, .argv = (char *)"[\"true\"]"};
        snprintf(row.id, sizeof(row.id), "%s", id_new('x').text);
        snprintf(row.machine, sizeof(row.machine), "%s", machine);
        ok(store_exec_add(s, &row, existing, &err));
    }
    struct exec_filter page = {.machine = machine, .limit = 2};
    struct exec_list first DEFER(exec_list_done) = {0};
    ok(store_exec_list(s, &page, &first, &err));
    assert_int_equal(first.count, 2);
    assert_int_equal(first.rows[1].number, 3);
    page.before = first.rows[1].number;
    for (int forgotten = 0; forgotten < 2; forgotten++) {
        struct exec_list next DEFER(exec_list_done) = {0};
        ok(store_exec_list(s, &page, &next, &err));
        assert_int_equal(next.count, 2);
        assert_int_equal(next.rows[0].number, 2);
        assert_int_equal(next.rows[1].number, 1);
        run_sql(s->db, "DELETE FROM execs WHERE number = 3");
    }
    store_close(s);
}

static int one_text(void *arg, int count, char **values, char **names) {
    (void)count, (void)names;
    snprintf(arg, 64, "%s", values[0] ? values[0] : "");
    return 0;
}

static void machines_of_an_earlier_version_keep_their_order(void **state) {
    (void)state;
    enum { BEFORE_NUMBERS = 14 };
    sqlite3 *db;
    char order[64] = "";
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    ok(schema_migrate(db, schema_steps, BEFORE_NUMBERS, &err));
    run_sql(db, "PRAGMA foreign_keys = 0; INSERT INTO machines(id, owner, kind, image, state,"
                " created_ms, ended_ms, end_reason, mem_bytes, cpu_milli, pids, disk_bytes, ttl_ms,"
                " idle_ms, idle_action, steps, incarnation, metadata, env) SELECT value, 'ann',"
                " 'box', 'host', 2, 100 - key, 0, '', 0, 0, 0, 0, 0, 0, 1, 1, 0, '{}', '{}'"
                " FROM json_each('[\"m-c\", \"m-a\", \"m-b\"]')");
    ok(schema_migrate(db, schema_steps, schema_version, &err));
    sqlite3_exec(db,
                 "SELECT group_concat(id || number, ' ')"
                 " FROM (SELECT id, number FROM machines ORDER BY number)",
                 one_text, order, NULL);
    assert_string_equal(order, "m-b1 m-a2 m-c3");
    sqlite3_close(db);
}

UNIT_MAIN(cmocka_unit_test(machines_are_in_order_while_the_clock_stands_still),
          cmocka_unit_test(machines_are_in_order_while_the_clock_goes_back),
          cmocka_unit_test(a_page_goes_on_after_its_last_machine_was_forgotten),
          cmocka_unit_test(a_damaged_row_does_not_end_the_pages),
          cmocka_unit_test(commands_go_on_after_the_last_of_a_page_was_forgotten),
          cmocka_unit_test(machines_of_an_earlier_version_keep_their_order))
