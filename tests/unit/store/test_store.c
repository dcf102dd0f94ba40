/* Rows in, rows out, across restarts, and what is refused. */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "store/events.h"
#include "store/execs.h"
#include "store/machines.h"
#include "store/owners.h"
#include "store/schema.h"
#include "store/steps.h"
#include "store/store.h"
#include "store/taints.h"
#include "tests/unit/outcome.h"
#include "tests/unit/scratch.h"
#include "tests/unit/stores.h"

static void add_owner(struct store *s, const char *name, int64_t uid) {
    struct owner_row row = {.uid = uid, .created_ms = 1};
    snprintf(row.name, sizeof(row.name), "%s", name);
    ok(store_owner_put(s, &row, &err));
}

static struct machine_row machine_of(const char *owner, const char *name, int64_t created_ms) {
    struct machine_row row = {.state = MACHINE_RUNNING,
                              .kind = "box",
                              .image = "host",
                              .created_ms = created_ms,
                              .idle_action = IDLE_PAUSE,
                              .steps = STEPS_MANUAL,
                              .mem_bytes = 1000,
                              .cpu_milli = 500,
                              .disk_bytes = 30};
    struct id id = id_new('m');
    memcpy(row.id, id.text, sizeof(row.id));
    snprintf(row.owner, sizeof(row.owner), "%s", owner);
    snprintf(row.name, sizeof(row.name), "%s", name);
    return row;
}

static void add_machine(struct store *s, const struct machine_row *row) {
    char existing[ID_SIZE];
    ok(store_machine_add(s, row, existing, &err));
    assert_string_equal(existing, "");
}

static struct exec_row exec_of(const struct machine_row *m) {
    struct exec_row row = {.state = EXEC_STARTING, .created_ms = 5, .argv = (char *)"[\"true\"]"};
    struct id id = id_new('x');
    memcpy(row.id, id.text, sizeof(row.id));
    memcpy(row.machine, m->id, sizeof(row.machine));
    memcpy(row.owner, m->owner, sizeof(row.owner));
    return row;
}

static void a_machine_comes_back_whole_after_a_restart(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = unit_store(dir.path, 0);
    add_owner(s, "ann", 1000);
    struct machine_row in = machine_of("ann", "build", 1234567890123);
    snprintf(in.token, sizeof(in.token), "t-abcdefghij23");
    snprintf(in.end_reason, sizeof(in.end_reason), "none \xc3\xa4");
    snprintf(in.key, sizeof(in.key), "key-1");
    memset(in.request_hash, 7, sizeof(in.request_hash));
    in.pids = 4;
    in.ttl_ms = STORE_NUMBER_MAX;
    in.idle_ms = 6;
    in.idle_action = IDLE_DESTROY;
    in.steps = STEPS_EVERY;
    in.incarnation = UINT64_MAX;
    in.metadata = (char *)"{\"a\":\"b\"}";
    add_machine(s, &in);
    store_close(s);

    s = unit_store(dir.path, 0);
    struct machine_row out;
    ok(store_machine_get(s, in.id, &out, &err));
    assert_string_equal(out.metadata, in.metadata);
    assert_string_equal(out.env, "{}");
    assert_memory_equal(&out, &in, offsetof(struct machine_row, metadata));
    machine_row_done(&out);
    refused(ERR_NOT_FOUND, store_machine_get(s, "m-aaaaaaaaaaaa", &out, &err));
    store_close(s);
}

/* A kind that the table of columns does not know could never be taken. */
static void the_newest_restore_point_before_a_step_is_found(void **state) {
    (void)state;
    static const struct {
        enum step_state state;
        uint32_t has_point;
    } steps[] = {{STEP_DONE, 1},   {STEP_DONE, 1}, {STEP_DONE, 0},
                 {STEP_TAKING, 1}, {STEP_DONE, 0}, {STEP_DONE, 1}};
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = unit_store(dir.path, 0);
    add_owner(s, "ann", 1000);
    struct machine_row m = machine_of("ann", "build", 1), other = machine_of("ann", "other", 2);
    add_machine(s, &m);
    add_machine(s, &other);
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        struct step_row row = {
            .kind = STEP_EXEC, .state = steps[i].state, .has_point = steps[i].has_point};
        memcpy(row.id, id_new('s').text, sizeof(row.id));
        memcpy(row.machine, m.id, sizeof(row.machine));
        ok(store_step_add(s, &row, &err));
    }
    struct step_row out = {0};
    ok(store_step_point_before(s, m.id, 5, &out, &err));
    assert_int_equal(out.number, 2);
    step_row_done(&out);
    assert_int_equal(store_step_point_before(s, m.id, 1, &out, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(store_step_point_before(s, other.id, 5, &out, &err), -1);
    store_close(s);
}

/* A daemon that allowed such names may have written one. */
static void a_name_in_the_form_of_an_id_finds_no_step(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = unit_store(dir.path, 0);
    add_owner(s, "ann", 1000);
    struct machine_row m = machine_of("ann", "build", 1);
    add_machine(s, &m);
    const struct id exec = id_new('x'), gone = id_new('x');
    const char *const names[] = {"", exec.text, gone.text, "x-ray"};
    struct step_row out = {0};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct step_row row = {.kind = STEP_EXEC, .state = STEP_DONE, .has_point = 1};
        memcpy(row.id, id_new('s').text, sizeof(row.id));
        memcpy(row.machine, m.id, sizeof(row.machine));
        snprintf(row.exec, sizeof(row.exec), "%s", i ? "" : exec.text);
        snprintf(row.name, sizeof(row.name), "%s", names[i]);
        ok(store_step_add(s, &row, &err));
    }
    ok(store_step_find(s, m.id, exec.text, &out, &err));
    assert_int_equal(out.number, 1);
    step_row_done(&out);
    refused(ERR_NOT_FOUND, store_step_find(s, m.id, gone.text, &out, &err));
    ok(store_step_find(s, m.id, "x-ray", &out, &err));
    assert_int_equal(out.number, 4);
    step_row_done(&out);
    store_close(s);
}

static void every_kind_of_step_can_be_written(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = unit_store(dir.path, 0);
    add_owner(s, "ann", 1000);
    struct machine_row m = machine_of("ann", "build", 1);
    add_machine(s, &m);
    for (int kind = STEP_EXEC; step_kind_name((enum step_kind)kind); kind++) {
        struct step_row row = {.kind = (enum step_kind)kind, .state = STEP_DONE}, out = {0};
        memcpy(row.id, id_new('s').text, sizeof(row.id));
        memcpy(row.machine, m.id, sizeof(row.machine));
        ok(store_step_add(s, &row, &err));
        ok(store_step_find(s, m.id, "last", &out, &err));
        assert_int_equal(out.kind, kind);
        step_row_done(&out);
    }
    store_close(s);
}

static uint64_t flushes_of(struct store *s) {
    struct store_stats stats;
    store_stats(s, &stats);
    return stats.flushes;
}

static void an_idle_store_leaves_the_disk_alone(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = unit_store(dir.path, 0);
    ok(store_sign(s, &err)); /* the journal has just begun: there is something */
    for (uint64_t before = UINT64_MAX; flushes_of(s) != before || !before; usleep(300000))
        before = flushes_of(s);
    uint64_t flushes = flushes_of(s);
    for (int i = 0; i < 4; i++) {
        ok(store_sign(s, &err));
        usleep(150000); /* longer than commits are gathered */
    }
    assert_int_equal(flushes_of(s), flushes);
    store_close(s);
}

static void names_are_unique_while_their_machine_lives(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = unit_store(dir.path, 0);
    char existing[ID_SIZE];
    add_owner(s, "ann", 1000);
    add_owner(s, "bob", -1);
    struct machine_row first = machine_of("ann", "web", 1), second = machine_of("ann", "web", 2),
                       other = machine_of("bob", "web", 3), lost = machine_of("eve", "", 4);
    add_machine(s, &first);
    refused(ERR_EXISTS, store_machine_add(s, &second, existing, &err));
    add_machine(s, &other);
    refused(ERR_NOT_FOUND, store_machine_add(s, &lost, existing, &err));
    ok(store_machine_end(s, first.id, 99, "asked", &err));
    add_machine(s, &second);

    struct machine_row found;
    ok(store_machine_find(s, "ann", "web", &found, &err));
    assert_string_equal(found.id, second.id);
    machine_row_done(&found);
    refused(ERR_INVALID, store_machine_find(s, NULL, "web", &found, &err));
    refused(ERR_NOT_FOUND, store_machine_find(s, "bob", second.id, &found, &err));
    char prefix[8];
    snprintf(prefix, sizeof(prefix), "%.7s", first.id);
    ok(store_machine_find(s, "ann", prefix, &found, &err));
    assert_string_equal(found.end_reason, "asked");
    assert_int_equal(found.ended_ms, 99);
    machine_row_done(&found);
    refused(ERR_NOT_FOUND, store_machine_find(s, "ann", "m-", &found, &err));
    store_close(s);
}

static void a_key_makes_one_machine_and_one_command(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = unit_store(dir.path, 0);
    char existing[ID_SIZE];
    add_owner(s, "ann", 1000);
    add_owner(s, "bob", 1001);
    struct machine_row first = machine_of("ann", "", 1), again = machine_of("ann", "", 2),
                       other = machine_of("bob", "", 3);
    snprintf(first.key, sizeof(first.key), "k");
    memset(first.request_hash, 1, SHA256_BYTES);
    memcpy(again.key, first.key, sizeof(again.key));
    memcpy(other.key, first.key, sizeof(other.key));
    memset(again.request_hash, 1, SHA256_BYTES);
    add_machine(s, &first);
    ok(store_machine_add(s, &again, existing, &err));
    assert_string_equal(existing, first.id);
    again.request_hash[31]++;
    refused(ERR_INVALID, store_machine_add(s, &again, existing, &err));
    assert_string_equal(existing, "");
    add_machine(s, &other);

    struct exec_row x = exec_of(&first), y = exec_of(&first), z = exec_of(&other);
    snprintf(x.key, sizeof(x.key), "k");
    memcpy(y.key, x.key, sizeof(y.key));
    memcpy(z.key, x.key, sizeof(z.key));
    memset(x.request_hash, 2, SHA256_BYTES);
    memset(y.request_hash, 2, SHA256_BYTES);
    ok(store_exec_add(s, &x, existing, &err));
    assert_string_equal(existing, "");
    ok(store_exec_add(s, &y, existing, &err));
    assert_string_equal(existing, x.id);
    y.request_hash[0]++;
    refused(ERR_INVALID, store_exec_add(s, &y, existing, &err));
    ok(store_exec_add(s, &z, existing, &err));
    assert_string_equal(existing, "");
    store_close(s);
}

static void commands_are_numbered_and_end(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = unit_store(dir.path, 0);
    char existing[ID_SIZE];
    add_owner(s, "ann", 1000);
    struct machine_row m = machine_of("ann", "", 1);
    add_machine(s, &m);
    struct exec_row rows[5];
    for (uint32_t i = 0; i < 5; i++) {
        rows[i] = exec_of(&m);
        ok(store_exec_add(s, &rows[i], existing, &err));
        assert_int_equal(rows[i].number, i + 1);
    }
    ok(store_exec_started(s, rows[1].id, 50, 123, &err));
    refused(ERR_NOT_FOUND, store_exec_started(s, rows[1].id, 60, 124, &err));
    struct exec_row done = {.state = EXEC_EXITED,
                            .exit_code = 3,
                            .ended_ms = 70,
                            .user_us = 1,
                            .system_us = 2,
                            .wall_us = 3,
                            .max_rss_kb = 4,
                            .out_bytes = 5,
                            .err_bytes = 6,
                            .pid = 123,
                            .reason = "timeout"};
    memcpy(done.id, rows[1].id, sizeof(done.id));
    ok(store_exec_finish(s, &done, &err));

    struct exec_row out;
    ok(store_exec_by_pid(s, m.id, 123, &out, &err));
    assert_string_equal(out.id, rows[1].id);
    exec_row_done(&out);
    refused(ERR_NOT_FOUND, store_exec_by_pid(s, m.id, 124, &out, &err));
    ok(store_exec_by_number(s, m.id, 2, &out, &err));
    assert_int_equal(out.state, EXEC_EXITED);
    assert_int_equal(out.exit_code, 3);
    assert_int_equal(out.started_ms, 50);
    assert_int_equal(out.ended_ms, 70);
    assert_int_equal(out.err_bytes, 6);
    assert_string_equal(out.argv, "[\"true\"]");
    assert_string_equal(out.reason, "timeout");
    exec_row_done(&out);
    /* One outcome: whoever reports another is not believed. */
    done.exit_code = 0;
    refused(ERR_NOT_FOUND, store_exec_finish(s, &done, &err));
    ok(store_exec_by_number(s, m.id, 2, &out, &err));
    assert_int_equal(out.exit_code, 3);
    exec_row_done(&out);

    size_t lost;
    ok(store_exec_lose(s, m.id, 80, "the machine was lost", &lost, &err));
    assert_int_equal(lost, 4);
    struct exec_list list;
    struct exec_filter filter = {.machine = m.id, .limit = 2, .states = 1u << EXEC_UNKNOWN};
    ok(store_exec_list(s, &filter, &list, &err));
    assert_int_equal(list.count, 2);
    assert_int_equal(list.rows[0].number, 5);
    assert_int_equal(list.rows[1].number, 4);
    exec_list_done(&list);
    filter.before = rows[3].number;
    ok(store_exec_list(s, &filter, &list, &err));
    assert_int_equal(list.count, 2);
    assert_int_equal(list.rows[0].number, 3);
    assert_int_equal(list.rows[1].number, 1);
    exec_list_done(&list);
    store_close(s);
}

/* The oldest that ended go; one that runs stays, whatever its age, and numbers go on. */
static void old_commands_of_a_machine_are_forgotten(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = unit_store(dir.path, 0);
    char existing[ID_SIZE];
    add_owner(s, "ann", 1000);
    struct machine_row m = machine_of("ann", "long", 1);
    add_machine(s, &m);
    struct exec_row rows[6];
    for (int i = 0; i < 6; i++) {
        rows[i] = exec_of(&m);
        ok(store_exec_add(s, &rows[i], existing, &err));
        rows[i].state = EXEC_EXITED;
        if (i != 1)
            ok(store_exec_finish(s, &rows[i], &err));
    }
    ok(store_exec_trim(s, m.id, 6, 10, &err));
    struct exec_filter filter = {.machine = m.id, .limit = 10};
    struct exec_list list = {0};
    ok(store_exec_list(s, &filter, &list, &err));
    assert_int_equal(list.count, 6);
    exec_list_done(&list);
    ok(store_exec_trim(s, m.id, 2, 1, &err));
    ok(store_exec_list(s, &filter, &list, &err));
    assert_int_equal(list.count, 5);
    exec_list_done(&list);
    ok(store_exec_trim(s, m.id, 2, 10, &err));
    ok(store_exec_list(s, &filter, &list, &err));
    assert_int_equal(list.count, 3);
    assert_int_equal(list.rows[0].number, 6);
    assert_int_equal(list.rows[1].number, 5);
    assert_int_equal(list.rows[2].number, 2);
    exec_list_done(&list);
    struct exec_row next = exec_of(&m);
    ok(store_exec_add(s, &next, existing, &err));
    assert_int_equal(next.number, 7);
    store_close(s);
}

static void lists_are_filtered_and_paged(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = unit_store(dir.path, 0);
    add_owner(s, "ann", 1000);
    add_owner(s, "bob", 1001);
    for (int i = 0; i < 40; i++) {
        struct machine_row row = machine_of(i % 2 ? "ann" : "bob", "", 1000 + i / 4);
        char meta[64];
        snprintf(meta, sizeof(meta), "{\"team\":\"%c\",\"x\\\"y\":%d}", 'a' + i % 3, i);
        row.metadata = meta;
        row.state = i % 8 == 7 ? MACHINE_ENDED : i % 8 == 5 ? MACHINE_PAUSED : MACHINE_RUNNING;
        snprintf(row.kind, sizeof(row.kind), "%s", i % 4 == 3 ? "cell" : "box");
        add_machine(s, &row);
    }
    struct {
        struct machine_filter filter;
        size_t count;
    } cases[] = {
        {{0}, 35},
        {{.states = MACHINE_STATES_ALL}, 40},
        {{.states = 1u << MACHINE_ENDED}, 5},
        {{.states = 1u << MACHINE_PAUSED, .owner = "ann"}, 5},
        {{.states = 1u << MACHINE_PAUSED, .owner = "bob"}, 0},
        {{.owner = "ann"}, 15},
        {{.owner = "ann", .states = MACHINE_STATES_ALL}, 20},
        {{.owner = "eve"}, 0},
        {{.kind = "cell"}, 5},
        {{.meta_key = "team", .meta_value = "b", .states = MACHINE_STATES_ALL}, 13},
        {{.meta_key = "team", .meta_value = "z"}, 0},
        {{.meta_key = "') OR 1", .meta_value = "z"}, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct machine_list list;
        ok(store_machine_list(s, &cases[i].filter, &list, &err));
        assert_int_equal(list.count, cases[i].count);
        machine_list_done(&list);

        /* The same, seven at a time: none twice, none missing, newest first. */
        struct machine_filter page = cases[i].filter;
        size_t seen = 0;
        int64_t newest = INT64_MAX;
        page.limit = 7;
        do {
            ok(store_machine_list(s, &page, &list, &err));
            for (size_t n = 0; n < list.count; n++) {
                assert_true(list.rows[n].created_ms <= newest);
                newest = list.rows[n].created_ms;
            }
            size_t count = list.count;
            seen += count;
            page.before = list.last;
            machine_list_done(&list);
            if (count < 7)
                break;
        } while (true);
        assert_int_equal(seen, cases[i].count);
    }
    uint64_t counts[MACHINE_ENDED + 1];
    ok(store_machine_counts(s, NULL, counts, &err));
    assert_int_equal(counts[MACHINE_ENDED], 5);
    assert_int_equal(counts[MACHINE_RUNNING], 30);
    ok(store_machine_counts(s, "bob", counts, &err));
    assert_int_equal(counts[MACHINE_ENDED], 0);
    assert_int_equal(counts[MACHINE_RUNNING], 20);
    ok(store_machine_counts(s, "ann", counts, &err));
    assert_int_equal(counts[MACHINE_ENDED], 5);
    assert_int_equal(counts[MACHINE_PAUSED], 5);
    assert_int_equal(counts[MACHINE_RUNNING], 10);
    store_close(s);
}

static void quotas_add_up(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = unit_store(dir.path, 0);
    struct quota used;
    add_owner(s, "ann", 1000);
    ok(store_quota_used(s, "ann", NULL, &used, &err));
    assert_memory_equal(&used, &(struct quota){0}, sizeof(used));
    for (int i = 0; i < 4; i++) {
        struct machine_row row = machine_of("ann", "", i);
        row.state = i == 0 ? MACHINE_STOPPED : i == 1 ? MACHINE_ENDED : MACHINE_RUNNING;
        if (i == 3)
            snprintf(row.token, sizeof(row.token), "t-aaaaaaaaaaaa");
        add_machine(s, &row);
    }
    ok(store_quota_used(s, "ann", NULL, &used, &err));
    struct quota all = {.machines = 3, .cpu_milli = 1000, .mem_bytes = 2000, .disk_bytes = 90};
    assert_memory_equal(&used, &all, sizeof(used));
    ok(store_quota_used(s, "ann", "t-aaaaaaaaaaaa", &used, &err));
    struct quota one = {.machines = 1, .cpu_milli = 500, .mem_bytes = 1000, .disk_bytes = 30};
    assert_memory_equal(&used, &one, sizeof(used));
    store_close(s);
}

static void machines_change_and_are_forgotten(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = unit_store(dir.path, 0);
    char existing[ID_SIZE];
    add_owner(s, "ann", 1000);
    struct machine_row row = machine_of("ann", "old", 1), out;
    add_machine(s, &row);
    ok(store_machine_set_running(s, row.id, 1ull << 63, &err));
    ok(store_machine_set_state(s, row.id, MACHINE_PAUSED, STATE_BY_IDLE, &err));
    refused(ERR_INVALID,
            store_machine_set_state(s, row.id, (enum machine_state)7, STATE_BY_IDLE, &err));
    refused(ERR_NOT_FOUND,
            store_machine_set_state(s, "m-aaaaaaaaaaaa", MACHINE_PAUSED, STATE_BY_IDLE, &err));
    ok(store_machine_get(s, row.id, &out, &err));
    assert_int_equal(out.state, MACHINE_PAUSED);
    assert_int_equal(out.state_by, STATE_BY_IDLE);
    assert_true(out.incarnation == 1ull << 63);
    snprintf(out.name, sizeof(out.name), "new");
    out.ttl_ms = 77;
    free(out.metadata);
    out.metadata = strdup("{\"n\":1}");
    ok(store_machine_update(s, &out, &err));
    free(out.metadata);
    out.metadata = strdup("{\"n\":");
    refused(ERR_INVALID, store_machine_update(s, &out, &err));
    machine_row_done(&out);
    ok(store_machine_find(s, "ann", "new", &out, &err));
    assert_int_equal(out.ttl_ms, 77);
    assert_string_equal(out.metadata, "{\"n\":1}");
    machine_row_done(&out);

    struct exec_row x = exec_of(&row);
    ok(store_exec_add(s, &x, existing, &err));
    size_t gone;
    ok(store_machine_trim(s, 1000, 10, &gone, &err));
    assert_int_equal(gone, 0);
    ok(store_machine_end(s, row.id, 500, "ttl", &err));
    ok(store_machine_trim(s, 500, 10, &gone, &err));
    assert_int_equal(gone, 0);
    struct id_list old DEFER(id_list_done) = {0};
    ok(store_machine_old(s, 500, 10, &old, &err));
    assert_int_equal(old.count, 0);
    id_list_done(&old);
    ok(store_machine_old(s, 501, 10, &old, &err));
    assert_int_equal(old.count, 1);
    assert_string_equal(old.ids[0], row.id);
    ok(store_machine_trim(s, 501, 10, &gone, &err));
    assert_int_equal(gone, 1);
    refused(ERR_NOT_FOUND, store_machine_get(s, row.id, &out, &err));
    struct exec_row lost;
    refused(ERR_NOT_FOUND, store_exec_get(s, x.id, &lost, &err));
    store_close(s);
}

static void tokens_open_what_they_say(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = unit_store(dir.path, 0);
    struct token_row row = {.owner = "ann",
                            .note = "ci",
                            .scopes = SCOPE_READ | SCOPE_RUN,
                            .created_ms = 1,
                            .quota = {.machines = 3, .lifetime_ms = 9}};
    char secret[TOKEN_SIZE], path[128], file[4096];
    refused(ERR_NOT_FOUND, store_token_add(s, &row, secret, &err));
    add_owner(s, "ann", 1000);
    row.scopes = 8;
    refused(ERR_INVALID, store_token_add(s, &row, secret, &err));
    row.scopes = SCOPE_READ | SCOPE_RUN;
    ok(store_token_add(s, &row, secret, &err));
    ok(store_flush(s, &err));

    struct token_row out;
    ok(store_token_check(s, secret, strlen(secret), 1000000, &out, &err));
    assert_string_equal(out.owner, "ann");
    assert_int_equal(out.scopes, SCOPE_READ | SCOPE_RUN);
    assert_int_equal(out.quota.machines, 3);
    ok(store_token_get(s, row.id, &out, &err));
    assert_int_equal(out.used_ms, 1000000);
    secret[10] = secret[10] == 'a' ? 'b' : 'a';
    refused(ERR_DENIED, store_token_check(s, secret, strlen(secret), 1, &out, &err));
    refused(ERR_DENIED, store_token_check(s, "", 0, 1, &out, &err));
    ok(store_token_add(s, &row, secret, &err));
    ok(store_token_revoke(s, row.id, 5, &err));
    refused(ERR_NOT_FOUND, store_token_revoke(s, row.id, 6, &err));
    refused(ERR_DENIED, store_token_check(s, secret, strlen(secret), 1, &out, &err));
    struct token_list list;
    ok(store_token_list(s, "ann", &list, &err));
    assert_int_equal(list.count, 2);
    token_list_done(&list);
    store_close(s);

    /* The secret itself is nowhere in the file. */
    int fd = open(scratch_file(&dir, "carrel.db", path), O_RDONLY);
    for (ssize_t n; (n = read(fd, file, sizeof(file))) > 0;)
        assert_null(memmem(file, (size_t)n, secret, strlen(secret)));
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    close(fd);
}

static void owners_are_found_by_name_and_uid(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = unit_store(dir.path, 0);
    struct owner_row row;
    add_owner(s, "ann", 1000);
    add_owner(s, "bob", -1);
    add_owner(s, "cat", -1);
    ok(store_owner_by_uid(s, 1000, &row, &err));
    assert_string_equal(row.name, "ann");
    refused(ERR_NOT_FOUND, store_owner_by_uid(s, -1, &row, &err));
    ok(store_owner_get(s, "bob", &row, &err));
    assert_int_equal(row.uid, -1);
    row.uid = 1000;
    refused(ERR_EXISTS, store_owner_put(s, &row, &err));
    row.uid = -1;
    row.quota.mem_bytes = 12;
    ok(store_owner_put(s, &row, &err));
    ok(store_owner_get(s, "bob", &row, &err));
    assert_int_equal(row.quota.mem_bytes, 12);
    row.quota.mem_bytes = UINT64_MAX;
    refused(ERR_INVALID, store_owner_put(s, &row, &err));
    memset(row.name, 'x', sizeof(row.name));
    refused(ERR_LIMIT, store_owner_put(s, &row, &err));
    struct owner_list list;
    ok(store_owner_list(s, &list, &err));
    assert_int_equal(list.count, 3);
    owner_list_done(&list);
    store_close(s);
}

static int64_t add_event(struct store *s, const char *machine, int64_t time_ms) {
    struct event_row row = {.owner = "ann", .type = "machine.created", .time_ms = time_ms};
    int64_t id;
    snprintf(row.machine, sizeof(row.machine), "%s", machine);
    ok(store_event_add(s, &row, &id, &err));
    return id;
}

static void events_go_on_after_an_id(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = unit_store(dir.path, 0);
    int64_t oldest, newest;
    ok(store_event_range(s, &oldest, &newest, &err));
    assert_int_equal(newest, 0);
    for (int i = 1; i <= 10; i++)
        assert_int_equal(add_event(s, i % 2 ? "m-aaaaaaaaaaaa" : "", i), i);
    struct event_list list;
    struct event_filter filter = {.machine = "m-aaaaaaaaaaaa", .limit = 3};
    ok(store_event_list(s, 2, &filter, &list, &err));
    assert_int_equal(list.count, 3);
    assert_int_equal(list.rows[0].id, 3);
    assert_int_equal(list.rows[2].id, 7);
    assert_string_equal(list.rows[2].json, "{}");
    event_list_done(&list);

    ok(store_event_trim(s, 4, 5, &err));
    ok(store_event_range(s, &oldest, &newest, &err));
    assert_int_equal(oldest, 6);
    ok(store_event_trim(s, 8, 1000, &err));
    ok(store_event_range(s, &oldest, &newest, &err));
    assert_int_equal(oldest, 8);
    ok(store_event_trim(s, 1000, 0, &err));
    ok(store_event_trim(s, 1000, 0, &err));
    store_close(s);
    s = unit_store(dir.path, 0);
    ok(store_event_range(s, &oldest, &newest, &err));
    assert_int_equal(oldest, 10);
    assert_int_equal(add_event(s, "", 11), 11);
    store_close(s);
}

static void a_transaction_is_all_or_nothing(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = unit_store(dir.path, 0);
    add_owner(s, "ann", 1000);
    struct machine_row a = machine_of("ann", "a", 1), b = machine_of("ann", "a", 2), out;
    char existing[ID_SIZE];
    ok(store_begin(s, &err));
    add_machine(s, &a);
    refused(ERR_EXISTS, store_machine_add(s, &b, existing, &err));
    store_rollback(s);
    refused(ERR_NOT_FOUND, store_machine_get(s, a.id, &out, &err));
    ok(store_begin(s, &err));
    add_machine(s, &a);
    add_event(s, a.id, 1);
    ok(store_commit(s, &err));
    store_rollback(s);
    ok(store_machine_get(s, a.id, &out, &err));
    machine_row_done(&out);
    store_close(s);
}

static void two_daemons_never_share_a_store(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store_options options = {.home = dir.path};
    struct store *s = unit_store(dir.path, 0), *other;
    refused(ERR_BUSY, store_open(&options, &other, &err));
    char pid[16];
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    assert_non_null(strstr(err.text, pid));
    store_close(s);
    store_close(unit_store(dir.path, 0));
}

/* A daemon that is killed while it starts a program leaves a child with its descriptors behind. */
static void a_dead_daemon_gives_the_store_up_with_its_last_child(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    pid_t daemon = fork();
    if (daemon == 0) {
        unit_store(dir.path, 0);
        if (fork() == 0)
            usleep(300000);
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(daemon, &status, 0), daemon);
    assert_int_equal(status, SIGKILL);
    store_close(unit_store(dir.path, 0));
}

/* ---- What is refused ---- */

static void run_sql(const struct scratch *dir, const char *sql) {
    char path[128];
    sqlite3 *db;
    assert_int_equal(sqlite3_open(scratch_file(dir, "carrel.db", path), &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    sqlite3_close(db);
}

static void a_newer_or_changed_schema_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *sql;
        enum err_code code;
    } cases[] = {
        {"PRAGMA user_version = 1000", ERR_UNSUPPORTED},
        {"PRAGMA user_version = -1", ERR_UNSUPPORTED},
        {"CREATE TABLE extra (x)", ERR_INVALID},
        {"DROP INDEX machines_name", ERR_INVALID},
        {"CREATE TRIGGER t AFTER INSERT ON machines BEGIN DELETE FROM tokens; END", ERR_INVALID},
        {"CREATE VIEW v AS SELECT 1", ERR_INVALID},
        {"PRAGMA user_version = 0", ERR_INTERNAL}, /* the first step finds its tables there */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct scratch dir DEFER(scratch_done) = scratch_new();
        struct store_options options = {.home = dir.path};
        struct store *s = unit_store(dir.path, 0);
        store_close(s);
        run_sql(&dir, cases[i].sql);
        refused(cases[i].code, store_open(&options, &s, &err));
    }
}

static void a_row_that_makes_no_sense_is_refused_not_believed(void **state) {
    (void)state;
    static const char *const changes[] = {
        "UPDATE machines SET state = 5000",
        "UPDATE machines SET mem_bytes = -1",
        "UPDATE machines SET name = printf('%.*c', 100, 'x')",
        "UPDATE machines SET kind = 'a' || char(0) || 'b'",
        "UPDATE machines SET request_hash = x'00'",
        "UPDATE machines SET idle_action = 0",
        "UPDATE machines SET metadata = '\"' || printf('%.*c', 1100000, 'x') || '\"'",
    };
    for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
        struct scratch dir DEFER(scratch_done) = scratch_new();
        struct store *s = unit_store(dir.path, 0);
        add_owner(s, "ann", 1000);
        struct machine_row row = machine_of("ann", "", 1), out;
        add_machine(s, &row);
        store_close(s);
        run_sql(&dir, changes[i]);
        s = unit_store(dir.path, 0);
        refused(ERR_INTERNAL, store_machine_get(s, row.id, &out, &err));
        assert_true(err.remedy[0] != '\0');
        store_close(s);
    }
}

static void migrations_are_made_once_and_whole(void **state) {
    (void)state;
    static const char *const steps[] = {
        "CREATE TABLE a (x INTEGER) STRICT;",
        "ALTER TABLE a ADD COLUMN y INTEGER NOT NULL DEFAULT 7; INSERT INTO a VALUES(1, 2);",
        "CREATE TABLE b (z TEXT) STRICT; UPDATE a SET y = y + 1;",
        "CREATE TABLE c (x); INSERT INTO nowhere VALUES(1);",
    };
    /* From every earlier version to the last. */
    for (size_t from = 0; from <= 3; from++) {
        sqlite3 *db;
        assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
        ok(schema_migrate(db, steps, from, &err));
        ok(schema_migrate(db, steps, 3, &err));
        ok(schema_check(db, steps, 3, &err));
        refused(ERR_INTERNAL, schema_migrate(db, steps, 4, &err));
        ok(schema_check(db, steps, 3, &err));
        ok(schema_migrate(db, steps, 3, &err));
        refused(ERR_UNSUPPORTED, schema_migrate(db, steps, 2, &err));
        sqlite3_close(db);
    }
}

static void every_released_version_can_be_brought_up(void **state) {
    (void)state;
    for (size_t from = 0; from <= schema_version; from++) {
        sqlite3 *db;
        assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
        ok(schema_migrate(db, schema_steps, from, &err));
        ok(schema_migrate(db, schema_steps, schema_version, &err));
        ok(schema_check(db, schema_steps, schema_version, &err));
        sqlite3_close(db);
    }
}

static int same_text(void *arg, int count, char **values, char **names) {
    (void)count, (void)names;
    snprintf(arg, 200, "%s", values[0]);
    return 0;
}

static void a_secret_that_was_granted_stays_granted(void **state) {
    char text[200] = "";
    sqlite3 *db;
    (void)state;
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    ok(schema_migrate(db, schema_steps, 9, &err));
    assert_int_equal(sqlite3_exec(db,
                                  "PRAGMA foreign_keys = 0; INSERT INTO secret_grants VALUES"
                                  "('m-a', 'KEY', 'api.test', 'basic', 'cph-123', 77)",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    ok(schema_migrate(db, schema_steps, schema_version, &err));
    sqlite3_exec(db,
                 "SELECT machine || ' ' || kind || ' ' || what || ' ' || place || ' ' || mode ||"
                 " ' ' || detail || ' ' || created_ms || ' ' || expires_ms FROM grants",
                 same_text, text, NULL);
    assert_string_equal(text, "m-a secret KEY api.test basic {\"placeholder\":\"cph-123\"} 77 0");
    sqlite3_exec(db, "SELECT id FROM grants", same_text, text, NULL);
    assert_true(id_valid(text, strlen(text), 'g'));
    sqlite3_close(db);
}

/* A statement that reads a whole table gets slower with every machine there ever was. */
static void statements_use_their_indexes(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = unit_store(dir.path, 0);
    static const bool may_scan[STMT_COUNT] = {
        [STMT_MACHINE_COUNTS] = true,       /* for metrics, over an index */
        [STMT_MACHINE_COUNTS_OWNER] = true, /* the same; of ended ones, also their rows */
        [STMT_OWNER_LIST] = true,           [STMT_TOKEN_LIST] = true,
        [STMT_MACHINE_LIST_LIVE] = true, /* over the index of live machines */
        [STMT_MACHINE_IDS] = true,       /* the same, once when the daemon starts */
        [STMT_MACHINE_BY_NAME] = true,   /* over the index of names, when any owner will do */
    };
    for (enum statement id = STMT_MACHINE_ADD; id < STMT_COUNT; id++) {
        struct buf sql DEFER(buf_done) = BUF(16384);
        sqlite3_stmt *stmt;
        assert_true(buf_addf(&sql, "EXPLAIN QUERY PLAN ") && statement_text(id, &sql));
        assert_int_equal(sqlite3_prepare_v2(s->db, sql.data, -1, &stmt, NULL), SQLITE_OK);
        while (sqlite3_step(stmt) == SQLITE_ROW) {
            const char *plan = (const char *)sqlite3_column_text(stmt, 3);
            bool whole = strncmp(plan, "SCAN machines", 13) == 0 ||
                         strncmp(plan, "SCAN execs", 10) == 0 ||
                         strncmp(plan, "SCAN changesets", 15) == 0;
            if (whole && !may_scan[id] && !strstr(plan, "machines_number"))
                fail_msg("%s\n%s", plan, sql.data);
            if (whole && !strstr(plan, "USING"))
                fail_msg("%s\n%s", plan, sql.data);
        }
        sqlite3_finalize(stmt);
    }
    store_close(s);
}

struct first_taint {
    char key[64], source[64];
    size_t count;
};

static void take_taint(void *arg, const char *key, const char *source) {
    struct first_taint *f = arg;
    snprintf(f->key, sizeof(f->key), "%s", key);
    snprintf(f->source, sizeof(f->source), "%s", source);
    f->count++;
}

/* What one owner did with an image says nothing about another one's. */
static void a_taint_belongs_to_an_owner_and_keeps_its_first_source(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = unit_store(dir.path, 0);
    static const struct {
        const char *owner, *kind;
        size_t count;
    } rows[] = {{"ann", "image", 1}, {"ben", "image", 0}, {"ann", "dir", 0}};
    ok(store_taint_put(s, "ann", "image", "i-1", "first.test", 5, &err));
    ok(store_taint_put(s, "ann", "image", "i-1", "second.test", 6, &err));
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct first_taint f = {.count = 0};
        ok(store_taint_each(s, rows[i].owner, rows[i].kind, take_taint, &f, &err));
        assert_int_equal(f.count, rows[i].count);
        if (f.count)
            assert_string_equal(f.source, "first.test");
    }
    store_close(s);
}

static void damage(const struct scratch *dir, const char *sql) {
    char path[128];
    sqlite3 *db;
    assert_int_equal(sqlite3_open(scratch_file(dir, "carrel.db", path), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

/* Whoever looks for what may be removed must know of every machine, readable or not. */
static void a_damaged_row_hides_no_other_and_keeps_its_id(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = unit_store(dir.path, 0);
    char existing[ID_SIZE];
    add_owner(s, "ann", 1);
    struct machine_row rows[3];
    for (int i = 0; i < 3; i++) {
        char name[8];
        snprintf(name, sizeof(name), "n%d", i);
        rows[i] = machine_of("ann", name, 10 + i);
        ok(store_machine_add(s, &rows[i], existing, &err));
    }
    store_close(s);
    damage(&dir, "UPDATE machines SET pids = -1 WHERE name = 'n1'");

    s = unit_store(dir.path, 0);
    struct id_list ids DEFER(id_list_done) = {0};
    ok(store_machine_ids(s, &ids, &err));
    assert_int_equal(ids.count, 3);
    struct machine_list list DEFER(machine_list_done) = {0};
    ok(store_machine_list(s, &(struct machine_filter){.limit = 10}, &list, &err));
    assert_int_equal(list.count, 2);
    assert_int_equal(list.damaged, 1);
    struct machine_row one;
    refused(ERR_INTERNAL, store_machine_get(s, rows[1].id, &one, &err));
    store_close(s);

    damage(&dir, "UPDATE machines SET id = 'nonsense' WHERE name = 'n1'");
    s = unit_store(dir.path, 0);
    struct id_list none DEFER(id_list_done) = {0};
    refused(ERR_INTERNAL, store_machine_ids(s, &none, &err));
    assert_int_equal(none.count, 0);
    store_close(s);
}

static void a_store_keeps_its_id_and_no_two_share_one(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new(),
                       other DEFER(scratch_done) = scratch_new();
    struct store *s = unit_store(dir.path, 0), *t = unit_store(other.path, 0);
    char id[ID_SIZE];
    snprintf(id, sizeof(id), "%s", store_id(s));
    assert_true(id_valid(id, strlen(id), 's'));
    assert_string_not_equal(id, store_id(t));
    store_close(s);
    store_close(t);
    s = unit_store(dir.path, 0);
    assert_string_equal(store_id(s), id);
    store_close(s);
    damage(&dir, "UPDATE meta SET value = 'x' WHERE name = 'store'");
    struct store_options options = {.home = dir.path};
    refused(ERR_INVALID, store_open(&options, &s, &err));
}

UNIT_MAIN(cmocka_unit_test(a_damaged_row_hides_no_other_and_keeps_its_id),
          cmocka_unit_test(a_store_keeps_its_id_and_no_two_share_one),
          cmocka_unit_test(a_machine_comes_back_whole_after_a_restart),
          cmocka_unit_test(a_taint_belongs_to_an_owner_and_keeps_its_first_source),
          cmocka_unit_test(the_newest_restore_point_before_a_step_is_found),
          cmocka_unit_test(a_name_in_the_form_of_an_id_finds_no_step),
          cmocka_unit_test(every_kind_of_step_can_be_written),
          cmocka_unit_test(an_idle_store_leaves_the_disk_alone),
          cmocka_unit_test(names_are_unique_while_their_machine_lives),
          cmocka_unit_test(a_key_makes_one_machine_and_one_command),
          cmocka_unit_test(commands_are_numbered_and_end),
          cmocka_unit_test(old_commands_of_a_machine_are_forgotten),
          cmocka_unit_test(lists_are_filtered_and_paged), cmocka_unit_test(quotas_add_up),
          cmocka_unit_test(machines_change_and_are_forgotten),
          cmocka_unit_test(tokens_open_what_they_say),
          cmocka_unit_test(owners_are_found_by_name_and_uid),
          cmocka_unit_test(events_go_on_after_an_id),
          cmocka_unit_test(a_transaction_is_all_or_nothing),
          cmocka_unit_test(two_daemons_never_share_a_store),
          cmocka_unit_test(a_dead_daemon_gives_the_store_up_with_its_last_child),
          cmocka_unit_test(a_newer_or_changed_schema_is_refused),
          cmocka_unit_test(a_row_that_makes_no_sense_is_refused_not_believed),
          cmocka_unit_test(migrations_are_made_once_and_whole),
          cmocka_unit_test(statements_use_their_indexes),
          cmocka_unit_test(every_released_version_can_be_brought_up),
          cmocka_unit_test(a_secret_that_was_granted_stays_granted))
