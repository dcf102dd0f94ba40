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
        struct compaction c = compact_plan(&l, A, i + 1, NULL);
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
    struct compaction c = compact_plan(&l, A, LAYERS_MAX + 1, NULL);
    assert_int_equal(c.count, LAYERS_MAX);
    merge(&l, &c);
    assert_int_equal(l.count, 1);
    assert_int_equal(l.v[0].number, 6 * LAYER_MERGED + LAYERS_MAX + 1);
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
        assert_int_equal(compact_plan(&l, A, 3 + i, NULL).count, merged[i]);
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
        struct compaction c = compact_plan(&l, A, i + 1, entries);
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
    assert_int_equal(compact_plan(&l, A, 502, entries).count, l.count);
}

/* Otherwise a stack of layers that each weigh a little more than the one above would stay long. */
static void a_light_layer_on_top_does_not_keep_others_from_being_merged(void **state) {
    (void)state;
    struct layers l = {.count = 0};
    const uint32_t entries[LAYERS_MAX] = {1, 5, 5, 5, 100};
    struct err err;
    for (uint32_t i = 5; i > 0; i--)
        layers_push(&l, A, 6 - i, &err);
    assert_int_equal(compact_plan(&l, A, 6, entries).count, 4);
}

/* Below the same upper, each merge covers the merge before it. */
static void merges_below_one_upper_have_different_numbers(void **state) {
    (void)state;
    struct layers l = {.count = 0};
    const uint32_t entries[LAYERS_MAX] = {0, 1};
    struct err err;
    layers_push(&l, A, 4, &err);
    layers_push(&l, A, 3 * LAYER_MERGED + 8, &err);
    assert_int_equal(compact_plan(&l, A, 8, entries).into, 4 * LAYER_MERGED + 8);
    assert_int_equal(compact_all(&l, A, 8).into, 4 * LAYER_MERGED + 8);
    l.v[0].number = LAYER_COPIED + 8;
    uint32_t heavy = compact_plan(&l, A, 8, entries).into;
    assert_int_equal(heavy, 31 * LAYER_MERGED + 8);
    l.v[0].number = heavy;
    assert_int_equal(compact_all(&l, A, 8).into, 32 * LAYER_MERGED + 8);
}

/*
 * An earlier daemon merged the layers 8 to 1 into 3 * LAYER_MERGED + 8 and copied the result to the
 * store. After a rewind to step 8, other layers are merged, which also weigh 8.
 */
static void a_merge_after_a_rewind_is_not_taken_for_a_copy_of_an_earlier_daemon(void **state) {
    (void)state;
    struct saved_row row = {.machine = A,
                            .disk = "d-aaaaaaaaaaaa",
                            .source = (char *)A "/30000008",
                            .stack = (char *)"d-aaaaaaaaaaaa/1",
                            .next = 2};
    struct layers l = {.count = 0};
    const uint32_t entries[LAYERS_MAX] = {4, 4, 50, 50, 50, 50, 500, 500};
    struct saved_plan plan;
    struct err err;
    char text[LAYERS_TEXT_SIZE];
    for (uint32_t i = 1; i <= 8; i++)
        layers_push(&l, A, i, &err);
    l.count = 3; /* the topmost three: 8, 7 and 6 */
    struct compaction c = compact_plan(&l, A, 20, entries);
    assert_int_equal(c.count, 2);
    merge(&l, &c);
    assert_true(layers_print(&l, text, sizeof(text)));
    assert_int_equal(saved_plan(&row, text, &plan, &err), 0);
    assert_true(plan.missing[0]);
}

/* ---- a machine with steps, late merges and rewinds ---- */

enum { HISTORY_ROUNDS = 20000, HISTORY_STEPS = 16 };

struct history {
    struct layers stack, steps[HISTORY_STEPS], run;
    uint32_t upper, into;
    uint64_t chance;
    uint32_t merged[HISTORY_ROUNDS]; /* numbers of all merged layers */
    size_t merged_count;
};

static uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint32_t history_chance(struct history *h, uint32_t below) {
    return (uint32_t)(mixed(h->chance += 0x9e3779b97f4a7c15u) % below);
}

static void history_take_step(struct history *h) {
    struct err err;
    if (h->stack.count == LAYERS_MAX)
        return;
    layers_push(&h->stack, A, h->upper++, &err);
    h->steps[history_chance(h, HISTORY_STEPS)] = h->stack;
}

static void history_rewind(struct history *h) {
    h->stack = h->steps[history_chance(h, HISTORY_STEPS)];
    h->upper++;
}

/* Files are counted before some merges only, as with two versions of the daemon. */
static void history_plan(struct history *h) {
    uint32_t entries[LAYERS_MAX];
    for (size_t i = 0; i < h->stack.count; i++)
        entries[i] = 1 + (uint32_t)(mixed(h->stack.v[i].number) % 9);
    uint32_t kind = history_chance(h, 16);
    struct compaction c = kind == 0
                              ? compact_all(&h->stack, A, h->upper)
                              : compact_plan(&h->stack, A, h->upper, kind < 8 ? entries : NULL);
    h->into = c.into;
    h->run.count = c.count;
    memcpy(h->run.v, h->stack.v, c.count * sizeof(*h->run.v));
}

/* Steps and rewinds may have changed the stack since the plan. */
static void history_merge(struct history *h) {
    bool used = compact_apply(&h->stack, &h->run, A, h->into);
    h->run.count = 0;
    if (!used)
        return;
    for (size_t i = 0; i < h->merged_count; i++)
        assert_int_not_equal(h->merged[i], h->into);
    h->merged[h->merged_count++] = h->into;
}

static void no_two_merged_layers_of_a_machine_have_one_number(void **state) {
    (void)state;
    static struct history h = {.upper = 1};
    for (int i = 0; i < HISTORY_ROUNDS; i++) {
        uint32_t what = history_chance(&h, 32);
        if (what < 4)
            history_rewind(&h);
        else if (what < 16)
            history_take_step(&h);
        else if (h.run.count == 0)
            history_plan(&h);
        else
            history_merge(&h);
    }
    assert_true(h.merged_count > HISTORY_ROUNDS / 20);
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
    assert_int_equal(compact_plan(&l, A, 16, NULL).count, 0);
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
    assert_int_equal(compact_plan(&l, A, 4, NULL).count, 0);
    layers_push(&l, A, 2, &err);
    assert_int_equal(compact_plan(&l, A, 4, NULL).count, 0);
    layers_push(&l, A, 3, &err);
    struct compaction c = compact_plan(&l, A, 4, NULL);
    assert_int_equal(c.count, 2);
    assert_int_equal(c.into, LAYER_MERGED + 4);
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

/* Their numbers say nothing about their weight, and are not those of other merged layers. */
static void layers_merged_for_a_full_disk_are_counted_and_merged_again(void **state) {
    (void)state;
    struct layers l = {.count = 0};
    const uint32_t entries[LAYERS_MAX] = {8, 8};
    struct err err;
    layers_push(&l, A, 4, &err);
    layers_push(&l, A, LAYER_SPARE + 8, &err);
    assert_false(compact_is_counted(&l.v[1]));
    assert_int_equal(compact_plan(&l, A, 9, entries).into, 4 * LAYER_MERGED + 9);
    l.v[0] = l.v[1];
    l.v[1].number = 3;
    assert_int_equal(compact_plan(&l, A, 9, entries).into, 4 * LAYER_MERGED + 9);
    assert_int_equal(compact_all(&l, A, 9).into, LAYER_MERGED + 9);
}

UNIT_MAIN(cmocka_unit_test(ten_thousand_steps_stay_within_sixteen_layers),
          cmocka_unit_test(merges_that_are_late_catch_up),
          cmocka_unit_test(a_heavy_layer_waits_for_as_many_light_ones),
          cmocka_unit_test(a_layer_of_many_files_waits_for_as_many_others),
          cmocka_unit_test(a_light_layer_on_top_does_not_keep_others_from_being_merged),
          cmocka_unit_test(merges_below_one_upper_have_different_numbers),
          cmocka_unit_test(layers_merged_for_a_full_disk_are_counted_and_merged_again),
          cmocka_unit_test(a_merge_after_a_rewind_is_not_taken_for_a_copy_of_an_earlier_daemon),
          cmocka_unit_test(no_two_merged_layers_of_a_machine_have_one_number),
          cmocka_unit_test(a_full_disk_gets_one_layer_of_all_its_own),
          cmocka_unit_test(layers_of_others_are_left_alone),
          cmocka_unit_test(a_run_is_found_below_newer_layers_or_not_at_all),
          cmocka_unit_test(only_layers_without_a_copy_are_copied))
