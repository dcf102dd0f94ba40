/* Which layers are merged: stacks stay short, and every layer is merged seldom. */
#include <string.h>

#include "store/compact.h"
#include "store/saved.h"
#include "tests/unit/unit.h"

#define A "m-aaaaaaaaaaaa"
#define B "m-bbbbbbbbbbbb"

static void merge(struct layers *l, const struct compaction *c) {
    struct layers run = {.count = c->count};
    memcpy(run.v, l->v + c->first, c->count * sizeof(*run.v));
    assert_true(compact_apply(l, &run, A, c->into));
}

static void ten_thousand_steps_stay_within_sixteen_layers(void **state) {
    (void)state;
    struct layers l = {.count = 0};
    struct err err;
    size_t linked = 0;
    for (uint32_t i = 1; i <= 10000; i++) {
        assert_int_equal(layers_push(&l, A, i, &err), 0);
        struct compaction c = compact_plan(&l, A, NULL);
        linked += c.count;
        if (c.count)
            merge(&l, &c);
        assert_true(l.count <= 14);
        for (size_t k = 0; k < l.count; k++)
            assert_true(l.v[k].number <= LAYER_NUMBER_MAX);
    }
    assert_true(linked < 3 * 10000);
}

static void merges_that_are_late_catch_up(void **state) {
    (void)state;
    struct layers l = {.count = 0};
    struct err err;
    for (uint32_t i = 1; i <= LAYERS_MAX; i++)
        assert_int_equal(layers_push(&l, A, i, &err), 0);
    struct compaction c = compact_plan(&l, A, NULL);
    assert_int_equal(c.count, LAYERS_MAX);
    merge(&l, &c);
    assert_int_equal(l.count, 1);
    assert_int_equal(l.v[0].number, 6 * LAYER_MERGED + LAYERS_MAX);
}

/* Each layer is merged only with others that weigh as much together: so it is copied seldom. */
static void a_heavy_layer_waits_for_as_many_light_ones(void **state) {
    (void)state;
    struct layers l = {.count = 0};
    struct err err;
    layers_push(&l, A, 2 * LAYER_MERGED + 1, &err);  /* of four steps */
    static const size_t merged[] = {0, 2, 3, 4 + 1}; /* with one light layer, with two, ... */
    for (uint32_t i = 0; i < sizeof(merged) / sizeof(*merged); i++) {
        layers_push(&l, A, 2 + i, &err);
        assert_int_equal(compact_plan(&l, A, NULL).count, merged[i]);
    }
}

/* What is merged depends on what changed: a layer with many files stays as it is below small ones.
 */
static void a_layer_of_many_files_waits_for_as_many_others(void **state) {
    (void)state;
    struct layers l = {.count = 0};
    uint32_t entries[LAYERS_MAX] = {0};
    struct err err;
    layers_push(&l, A, 1, &err);
    entries[0] = 20000;
    for (uint32_t i = 2; i <= 500; i++) {
        assert_int_equal(layers_push(&l, A, i, &err), 0);
        memmove(entries + 1, entries, (LAYERS_MAX - 1) * sizeof(*entries));
        entries[0] = 12;
        struct compaction c = compact_plan(&l, A, entries);
        if (!c.count)
            continue;
        memmove(entries + 1, entries + c.count, (LAYERS_MAX - c.count) * sizeof(*entries));
        merge(&l, &c);
        assert_int_equal(l.v[l.count - 1].number, 1);
        assert_true(l.count <= 12);
    }
    assert_int_equal(layers_push(&l, A, 501, &err), 0);
    memmove(entries + 1, entries, (LAYERS_MAX - 1) * sizeof(*entries));
    entries[0] = 19000; /* with the others above it more than the first layer */
    assert_int_equal(compact_plan(&l, A, entries).count, l.count);
}

/* Otherwise a stack of layers that each weigh a little more than the one above would stay long. */
static void a_light_layer_on_top_does_not_keep_others_from_being_merged(void **state) {
    (void)state;
    struct layers l = {.count = 0};
    const uint32_t entries[LAYERS_MAX] = {1, 5, 5, 5, 100};
    struct err err;
    for (uint32_t i = 5; i > 0; i--)
        layers_push(&l, A, 6 - i, &err);
    assert_int_equal(compact_plan(&l, A, entries).count, 4);
}

/* The name of a merged layer is new, although the top layer has been merged before. */
static void a_merged_layer_that_is_merged_again_has_another_number(void **state) {
    (void)state;
    struct layers l = {.count = 0};
    const uint32_t entries[LAYERS_MAX] = {0, 1};
    struct err err;
    layers_push(&l, A, 4, &err);
    layers_push(&l, A, 3 * LAYER_MERGED + 7, &err);
    assert_int_equal(compact_plan(&l, A, entries).into, 4 * LAYER_MERGED + 7);
}

static void a_full_disk_gets_one_layer_of_all_its_own(void **state) {
    (void)state;
    struct layers l = {.count = 0};
    struct err err;
    layers_push(&l, B, 1, &err);
    layers_push(&l, A, 3 * LAYER_MERGED + 8, &err);
    assert_int_equal(compact_all(&l, A, 16).count, 0);
    layers_push(&l, A, 2 * LAYER_MERGED + 12, &err);
    layers_push(&l, A, LAYER_MERGED + 14, &err);
    layers_push(&l, A, 15, &err);
    assert_int_equal(compact_plan(&l, A, NULL).count, 0);
    struct compaction c = compact_all(&l, A, 16);
    assert_int_equal(c.count, 4);
    assert_int_equal(c.into, 3 * LAYER_MERGED + 16);
    merge(&l, &c);
    assert_int_equal(l.count, 2);
    assert_string_equal(l.v[1].machine, B);
}

static void layers_of_others_are_left_alone(void **state) {
    (void)state;
    struct layers l = {.count = 0};
    struct err err;
    layers_push(&l, B, 1, &err);
    layers_push(&l, B, 2, &err);
    assert_int_equal(compact_plan(&l, A, NULL).count, 0);
    layers_push(&l, A, 2, &err);
    assert_int_equal(compact_plan(&l, A, NULL).count, 0);
    layers_push(&l, A, 3, &err);
    struct compaction c = compact_plan(&l, A, NULL);
    assert_int_equal(c.count, 2);
    assert_int_equal(c.into, LAYER_MERGED + 3);
    merge(&l, &c);
    assert_int_equal(l.count, 3);
    assert_string_equal(l.v[1].machine, B);
}

static void a_run_is_found_below_newer_layers_or_not_at_all(void **state) {
    (void)state;
    struct layers l = {.count = 0}, run = {.count = 0};
    struct err err;
    for (uint32_t i = 1; i <= 4; i++)
        layers_push(&l, A, i, &err);
    layers_push(&run, A, 1, &err);
    layers_push(&run, A, 2, &err);
    assert_true(compact_apply(&l, &run, A, LAYER_MERGED + 2));
    assert_int_equal(l.count, 3);
    assert_int_equal(l.v[2].number, LAYER_MERGED + 2);
    assert_false(compact_apply(&l, &run, A, LAYER_MERGED + 2));
}

static void only_layers_without_a_copy_are_copied(void **state) {
    (void)state;
    struct saved_row row = {.machine = A,
                            .disk = "d-aaaaaaaaaaaa",
                            .source = (char *)A "/7 " B "/3",
                            .stack = (char *)"d-aaaaaaaaaaaa/2 d-aaaaaaaaaaaa/1",
                            .next = 3};
    struct saved_plan plan;
    struct err err;
    char text[LAYERS_TEXT_SIZE];
    assert_int_equal(saved_plan(&row, A "/9 " A "/7 " B "/3 " B "/7 d-aaaaaaaaaaaa/1", &plan, &err),
                     0);
    assert_true(layers_print(&plan.to, text, sizeof(text)));
    assert_string_equal(text, "d-aaaaaaaaaaaa/3 d-aaaaaaaaaaaa/2 d-aaaaaaaaaaaa/1 "
                              "d-aaaaaaaaaaaa/4 d-aaaaaaaaaaaa/1");
    static const bool missing[] = {true, false, false, true, false};
    assert_memory_equal(plan.missing, missing, sizeof(missing));
    assert_int_equal(row.next, 5);
    assert_int_equal(saved_plan(&row, "", &plan, &err), 0);
    assert_int_equal(plan.to.count, 0);
    row.next = LAYER_NUMBER_MAX;
    assert_int_equal(saved_plan(&row, A "/9", &plan, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT);
}

UNIT_MAIN(cmocka_unit_test(ten_thousand_steps_stay_within_sixteen_layers),
          cmocka_unit_test(merges_that_are_late_catch_up),
          cmocka_unit_test(a_heavy_layer_waits_for_as_many_light_ones),
          cmocka_unit_test(a_layer_of_many_files_waits_for_as_many_others),
          cmocka_unit_test(a_light_layer_on_top_does_not_keep_others_from_being_merged),
          cmocka_unit_test(a_merged_layer_that_is_merged_again_has_another_number),
          cmocka_unit_test(a_full_disk_gets_one_layer_of_all_its_own),
          cmocka_unit_test(layers_of_others_are_left_alone),
          cmocka_unit_test(a_run_is_found_below_newer_layers_or_not_at_all),
          cmocka_unit_test(only_layers_without_a_copy_are_copied))
