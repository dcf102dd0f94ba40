/* Quotas of owners and tokens, over a real store. */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "io/place.h"
#include "service/state.h"
#include "service/vm/memory.h"
#include "store/conf.h"
#include "store/owners.h"
#include "tests/unit/scratch.h"
#include "tests/unit/stores.h"

enum { MIB = 1 << 20 };

struct world {
    struct scratch dir;
    struct conf conf;
    struct place place;
    struct service service;
    struct caller ann;
};

static void world_close(struct world *w) {
    store_close(w->service.store);
    scratch_done(&w->dir);
}

static void world_open(struct world *w, const struct quota *of_ann) {
    *w = (struct world){.dir = scratch_new(), .ann = {.owner = "ann"}};
    struct owner_row owner = {.name = "ann", .uid = 1000, .quota = *of_ann};
    snprintf(w->place.home, sizeof(w->place.home), "%s", w->dir.path);
    w->service.place = &w->place;
    w->service.conf = &w->conf;
    w->service.store = unit_store_of(w->dir.path, &owner);
}

static struct machine_row machine_of(const char *token) {
    struct machine_row row = {.owner = "ann",
                              .kind = "box",
                              .image = "host",
                              .state = MACHINE_RUNNING,
                              .created_ms = 1,
                              .mem_bytes = 64 * MIB,
                              .cpu_milli = 500,
                              .disk_bytes = 100 * MIB,
                              .ttl_ms = 1000,
                              .idle_action = IDLE_PAUSE,
                              .steps = STEPS_EVERY};
    snprintf(row.id, sizeof(row.id), "%s", id_new('m').text);
    snprintf(row.token, sizeof(row.token), "%s", token);
    return row;
}

static void add(struct world *w, const struct machine_row *row) {
    char existing[ID_SIZE];
    struct err err = {0};
    if (store_machine_add(w->service.store, row, existing, &err) < 0)
        fail_msg("%s", err.text);
}

static void fits(struct world *w, const struct machine_row *before, const struct machine_row *row) {
    struct err err = {0};
    if (quota_check(&w->service, &w->ann, before, row, &err) < 0)
        fail_msg("%s", err.text);
}

static void too_much(struct world *w, const struct machine_row *before,
                     const struct machine_row *row) {
    struct err err = {0};
    assert_int_equal(quota_check(&w->service, &w->ann, before, row, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT);
    assert_true(err.remedy[0]);
}

static void an_owner_without_a_quota_may_have_anything(void **state) {
    (void)state;
    struct world w DEFER(world_close);
    world_open(&w, &(struct quota){0});
    struct machine_row row = machine_of("");
    add(&w, &row);
    struct machine_row unlimited = machine_of("");
    unlimited.mem_bytes = unlimited.disk_bytes = unlimited.cpu_milli = unlimited.ttl_ms = 0;
    fits(&w, NULL, &unlimited);
}

static void each_limit_of_an_owner_counts_all_its_machines(void **state) {
    (void)state;
    static const struct quota quotas[] = {
        {.machines = 2},
        {.cpu_milli = 1000},
        {.mem_bytes = 128 * MIB},
        {.disk_bytes = 200 * MIB},
    };
    for (size_t i = 0; i < sizeof(quotas) / sizeof(*quotas); i++) {
        struct world w DEFER(world_close);
        world_open(&w, &quotas[i]);
        struct machine_row row = machine_of("");
        fits(&w, NULL, &row);
        add(&w, &row);
        row = machine_of("");
        fits(&w, NULL, &row); /* exactly as much as may be */
        add(&w, &row);
        row = machine_of("");
        too_much(&w, NULL, &row);
        assert_int_equal(w.service.hits[HIT_QUOTA], 1);
    }
}

static void a_limited_resource_needs_a_limit_of_the_machine(void **state) {
    (void)state;
    struct world w DEFER(world_close);
    world_open(&w, &(struct quota){.mem_bytes = 128 * MIB, .lifetime_ms = 5000});
    struct machine_row row = machine_of("");
    row.mem_bytes = 0;
    too_much(&w, NULL, &row);
    row = machine_of("");
    row.ttl_ms = 0;
    too_much(&w, NULL, &row);
    row.ttl_ms = 5001;
    too_much(&w, NULL, &row);
    row.ttl_ms = 5000;
    fits(&w, NULL, &row);
}

static void a_machine_that_changes_does_not_count_twice(void **state) {
    (void)state;
    struct world w DEFER(world_close);
    world_open(&w, &(struct quota){.machines = 1, .mem_bytes = 128 * MIB});
    struct machine_row before = machine_of("");
    add(&w, &before);
    struct machine_row after = before;
    after.mem_bytes = 128 * MIB;
    fits(&w, &before, &after);
    after.mem_bytes = 128 * MIB + 1;
    too_much(&w, &before, &after);
}

static void a_token_has_a_quota_beside_its_owners(void **state) {
    (void)state;
    struct world w DEFER(world_close);
    world_open(&w, &(struct quota){.machines = 3});
    struct machine_row row = machine_of(""), of_token = machine_of("t-one");
    add(&w, &row);
    snprintf(w.ann.token, sizeof(w.ann.token), "t-one");
    w.ann.quota = (struct quota){.machines = 1};
    fits(&w, NULL, &of_token); /* the owner's other machine is not the token's */
    add(&w, &of_token);
    of_token = machine_of("t-one");
    too_much(&w, NULL, &of_token);
}

static void held_disk_is_taken_until_it_is_released(void **state) {
    (void)state;
    struct world w DEFER(world_close);
    world_open(&w, &(struct quota){.disk_bytes = 250 * MIB});
    struct machine_row row = machine_of("");
    struct disk_hold first = {.who = &w.ann}, second = {.who = &w.ann};
    struct err err = {0};
    add(&w, &row);
    assert_int_equal(quota_hold(&w.service, &first, &err), 0);
    assert_int_equal(first.bytes, 150 * MIB);
    assert_int_equal(quota_hold(&w.service, &second, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT);
    row = machine_of("");
    too_much(&w, NULL, &row);
    quota_release(&w.service, &second); /* never held: nothing happens */
    quota_release(&w.service, &first);
    fits(&w, NULL, &row);
}

static void write_memory(const struct world *w, const char *machine) {
    char path[MEMORY_PATH_SIZE];
    static const char bytes[MIB];
    snprintf(path, sizeof(path), "%s/memory", w->dir.path);
    assert_int_equal(mkdir(path, 0700), 0);
    memory_path(&w->service, machine, "s-aaaaaaaaaaaa", path);
    int fd DEFER_CLOSE = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
}

static void saved_memory_of_vms_counts_as_disk_of_their_owner(void **state) {
    (void)state;
    struct world w DEFER(world_close);
    world_open(&w, &(struct quota){.disk_bytes = 200 * MIB});
    struct machine_row row = machine_of("");
    struct live vm = {.row = machine_of("t-one")};
    add(&w, &vm.row);
    map_put(&w.service.machines, vm.row.id, &vm);
    fits(&w, NULL, &row);
    write_memory(&w, vm.row.id);
    too_much(&w, NULL, &row);
    assert_true(memory_used(&w.service, "ann", "t-one", vm.row.id) >= MIB);
    assert_int_equal(memory_used(&w.service, "ann", "t-two", NULL), 0);
    assert_int_equal(memory_used(&w.service, "ben", NULL, NULL), 0);
    assert_int_equal(memory_used(&w.service, "ann", NULL, row.id), 0);
    map_done(&w.service.machines);
}

static void the_daemon_has_a_limit_of_its_own(void **state) {
    (void)state;
    struct world w DEFER(world_close);
    world_open(&w, &(struct quota){0});
    w.conf.max_machines = 1;
    struct machine_row row = machine_of("");
    struct err err = {0};
    fits(&w, NULL, &row);
    w.service.machines.count = 1;
    assert_int_equal(quota_check(&w.service, &w.ann, NULL, &row, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT);
    fits(&w, &row, &row); /* a change adds none */
    w.service.machines.count = 0;
}

static void an_owner_has_a_limit_of_machines_in_the_configuration(void **state) {
    (void)state;
    struct world w DEFER(world_close);
    world_open(&w, &(struct quota){0});
    w.conf.machines_per_owner = 2;
    struct machine_row first = machine_of(""), second = machine_of(""), third = machine_of("");
    struct err err = {0};
    add(&w, &first);
    fits(&w, NULL, &second);
    add(&w, &second);
    assert_int_equal(quota_check(&w.service, &w.ann, NULL, &third, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT);
    assert_string_equal(err.text, "you have 2 machines, which is the limit of an owner");
    fits(&w, &second, &third); /* a change adds none */
}

UNIT_MAIN(cmocka_unit_test(an_owner_without_a_quota_may_have_anything),
          cmocka_unit_test(each_limit_of_an_owner_counts_all_its_machines),
          cmocka_unit_test(a_limited_resource_needs_a_limit_of_the_machine),
          cmocka_unit_test(a_machine_that_changes_does_not_count_twice),
          cmocka_unit_test(a_token_has_a_quota_beside_its_owners),
          cmocka_unit_test(held_disk_is_taken_until_it_is_released),
          cmocka_unit_test(saved_memory_of_vms_counts_as_disk_of_their_owner),
          cmocka_unit_test(the_daemon_has_a_limit_of_its_own),
          cmocka_unit_test(an_owner_has_a_limit_of_machines_in_the_configuration))
