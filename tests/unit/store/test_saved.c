/* Disks with saved layers: which of them a machine that has not ended uses. */
#include "tests/unit/unit.h"

#include <string.h>

#include "base/defer.h"
#include "store/machines.h"
#include "store/saved.h"
#include "tests/unit/outcome.h"
#include "tests/unit/scratch.h"
#include "tests/unit/stores.h"

/* The disks of one machine: of its saved step, its root and an older step. */
struct disks {
    struct id saved, root, step;
};

static struct disks add_machine(struct store *s, bool has_ended) {
    struct machine_row m = {.owner = "ann",
                            .kind = "cell",
                            .image = "host",
                            .state = has_ended ? MACHINE_ENDED : MACHINE_RUNNING,
                            .created_ms = 1,
                            .idle_action = IDLE_PAUSE,
                            .steps = STEPS_MANUAL};
    struct disks d = {id_new('d'), id_new('d'), id_new('d')};
    struct step_row step = {
        .kind = STEP_KEPT, .state = STEP_DONE, .created_ms = 1, .has_point = 1, .status = -1};
    char existing[ID_SIZE], stack[2][100];
    snprintf(m.id, sizeof(m.id), "%s", id_new('m').text);
    ok(store_machine_add(s, &m, existing, &err));
    struct saved_row saved = {.source = (char *)"", .stack = (char *)"", .next = 1};
    snprintf(saved.machine, sizeof(saved.machine), "%s", m.id);
    snprintf(saved.disk, sizeof(saved.disk), "%s", d.saved.text);
    ok(store_saved_put(s, &saved, &err));
    snprintf(stack[0], sizeof(stack[0]), "%s/2 %s/1", m.id, d.root.text);
    snprintf(stack[1], sizeof(stack[1]), "%s/1", d.step.text);
    struct root_row root = {.layer = 3, .stack = stack[0]};
    snprintf(root.machine, sizeof(root.machine), "%s", m.id);
    ok(store_root_put(s, &root, &err));
    step.stack = stack[1];
    snprintf(step.id, sizeof(step.id), "%s", id_new('s').text);
    snprintf(step.machine, sizeof(step.machine), "%s", m.id);
    ok(store_step_add(s, &step, &err));
    ok(store_step_update(s, &step, &err));
    return d;
}

static void put_disks(struct map *to, struct disks *d) {
    map_put(to, d->saved.text, d);
    map_put(to, d->root.text, d);
    map_put(to, d->step.text, d);
}

static void disks_of_ended_machines_and_of_nobody_are_left(void **state) {
    (void)state;
    struct scratch dir = scratch_new();
    struct store *s = unit_store_of(dir.path, &unit_ann);
    struct disks used = add_machine(s, false), ended = add_machine(s, true);
    struct id alone = id_new('d');
    struct map disks = {0};
    put_disks(&disks, &used);
    put_disks(&disks, &ended);
    map_put(&disks, alone.text, &alone);
    ok(store_saved_take_used(s, &disks, &err));
    assert_int_equal(disks.count, 4);
    assert_null(map_get(&disks, used.saved.text));
    assert_null(map_get(&disks, used.root.text));
    assert_null(map_get(&disks, used.step.text));
    assert_non_null(map_get(&disks, ended.saved.text));
    assert_non_null(map_get(&disks, ended.root.text));
    assert_non_null(map_get(&disks, ended.step.text));
    assert_non_null(map_get(&disks, alone.text));
    map_done(&disks);
    store_close(s);
    scratch_done(&dir);
}

UNIT_MAIN(cmocka_unit_test(disks_of_ended_machines_and_of_nobody_are_left))
