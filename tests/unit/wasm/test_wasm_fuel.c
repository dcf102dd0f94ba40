/* Fuel is the same on every path, and bounds the work that is done for it. Work is counted, never
   timed: bench/cell/fuel.py measures processor time. */
#include "tests/unit/wasm_cell.h"

#include "wasm/engine.h"

static void repeat(struct buf *b, const char *text, int n) {
    for (int i = 0; i < n; i++)
        assert_true(buf_addf(b, "%s", text));
}

/* Run an export to its end in slices; returns the fuel that it took. */
static uint64_t fuel_in_slices(const char *text, uint64_t slice) {
    struct cell c;
    cell_open(&c, text);
    wasm_fuel_add(c.store, 1000000000);
    uint64_t before = wasm_fuel_used(c.store);
    start(&c, "f", 0);
    while (wasm_run(c.store, slice)->outcome == WASM_SLICE)
        ;
    uint64_t used = wasm_fuel_used(c.store) - before;
    cell_close(&c);
    return used;
}

static void expect_fuel(const char *text, uint64_t want) {
    assert_int_equal(fuel_in_slices(text, UINT64_MAX), want);
    for (uint64_t slice = 1; slice < want + 2 && slice < 40; slice++)
        assert_int_equal(fuel_in_slices(text, slice), want);
}

/* ---- The same on every path ---- */

/* Constants that are dropped have no code: in fast code both blocks start at one word. */
static void two_blocks_at_one_word_lose_no_fuel(void **state) {
    (void)state;
    expect_fuel("(module (func (export \"f\") (param i32)"
                "  (block (br_if 0 (local.get 0)) (drop (i32.const 1)) (drop (i32.const 2))"
                "    (loop (drop (i32.const 3)) (br_if 0 (local.get 0))))))",
                7);
    expect_fuel("(module (func $g) (func (export \"f\") (param i32)"
                "  (call $g) (drop (i32.const 1)) (loop (br_if 0 (local.get 0)))))",
                4);
    expect_fuel("(module (func (export \"f\") (param i32) (local i64 i64)"
                "  (loop (br_if 0 (local.get 0)))))",
                3);
}

static void a_self_paying_instruction_at_a_block_start_loses_no_fuel(void **state) {
    (void)state;
    expect_fuel("(module (memory 1) (func (export \"f\") (param i32)"
                "  i32.const 0 i32.const 0 i32.const 64"
                "  (block (param i32 i32 i32)"
                "    (br_if 1 (local.get 0)) (drop (i32.const 1)) memory.fill)))",
                8);
}

static void a_long_block_without_code_is_paid_whole(void **state) {
    (void)state;
    struct buf text DEFER(buf_done) = BUF(1 << 22);
    assert_true(buf_addf(&text, "(module (func (export \"f\") (param i32)"
                                "  (block (br_if 0 (local.get 0))"));
    repeat(&text, "(drop (i32.const 1))", 40000);
    assert_true(buf_addf(&text, ")))"));
    assert_int_equal(fuel_in_slices(text.data, UINT64_MAX), 40002);
    assert_int_equal(fuel_in_slices(text.data, 7), 40002);
    assert_int_equal(fuel_in_slices(text.data, 30001), 40002);
}

/* ---- Stops ---- */

enum { EMPTY_LOOPS = 20000, WORK_PER_FUEL = 40 };

static void a_stop_among_empty_loops_does_bounded_work(void **state) {
    (void)state;
    struct buf text DEFER(buf_done) = BUF(1 << 23);
    struct cell c;
    assert_true(buf_addf(&text, "(module (func $g) (func (export \"f\") (param i32) (result i32)"
                                "(call $g) local.get 0 "));
    repeat(&text, "loop end ", EMPTY_LOOPS);
    assert_true(buf_addf(&text, "i32.const 1 i32.add "));
    repeat(&text, "loop end ", EMPTY_LOOPS);
    assert_true(buf_addf(&text, "i32.const 1 i32.add))"));
    cell_open(&c, text.data);
    start(&c, "f", 5);
    const struct wasm_event *ev;
    while ((ev = wasm_run(c.store, 1))->outcome == WASM_SLICE)
        ;
    assert_int_equal(ev->outcome, WASM_DONE);
    assert_int_equal(ev->values[0].i32, 7);
    assert_in_range(c.engine->work, 1, WORK_PER_FUEL * wasm_fuel_used(c.store));
    /* Loops that start at one place are one word of stepping code. */
    assert_in_range(c.module->fns[1].step->n_words, 1, 40);
    cell_close(&c);
}

/* A br_table whose target cannot be paid is looked up at a word where many blocks start. */
static void a_branch_table_behind_empty_loops_does_bounded_work(void **state) {
    (void)state;
    struct buf text DEFER(buf_done) = BUF(1 << 23);
    assert_true(buf_addf(&text, "(module (func (export \"f\") (param i32) "));
    repeat(&text, "loop end ", EMPTY_LOOPS);
    assert_true(buf_addf(&text, "block local.get 0 br_table 0 0 end "));
    repeat(&text, "(drop (i32.const 1))", 8);
    assert_true(buf_addf(&text, "))"));
    for (uint64_t slice = 2; slice < 10; slice++) {
        struct cell c;
        cell_open(&c, text.data);
        start(&c, "f", 0);
        while (wasm_run(c.store, slice)->outcome == WASM_SLICE)
            ;
        assert_int_equal(wasm_fuel_used(c.store), 10);
        assert_in_range(c.engine->work, 1, WORK_PER_FUEL * 10);
        cell_close(&c);
    }
}

/* ---- Collections ---- */

/* Structs that are garbage at once, beside a large table that the collector has to look through. */
#define GARBAGE(table)                                                            \
    "(module (type $s (struct (field i64) (field i64))) (table " table " anyref)" \
    "  (func (export \"f\") (param i32)"                                          \
    "    (local.set 0 (i32.const 60000))"                                         \
    "    (loop $l (drop (struct.new_default $s))"                                 \
    "      (br_if $l (local.tee 0 (i32.sub (local.get 0) (i32.const 1)))))))"
static const char garbage[] = GARBAGE("300000"), no_table[] = GARBAGE("0");

static void a_collection_is_paid_by_what_it_looks_at(void **state) {
    (void)state;
    struct cell c;
    cell_open(&c, garbage);
    wasm_fuel_add(c.store, 1000000);
    uint64_t before = wasm_fuel_used(c.store);
    start(&c, "f", 0);
    assert_int_equal(wasm_run(c.store, UINT64_MAX)->outcome, WASM_DONE);
    assert_true(c.engine->work > 300000); /* it did collect */
    assert_in_range(c.engine->work, 1, 8 * (wasm_fuel_used(c.store) - before));
    cell_close(&c);
}

static void a_collection_costs_the_same_in_slices(void **state) {
    (void)state;
    uint64_t want = fuel_in_slices(garbage, UINT64_MAX);
    assert_int_equal(want - fuel_in_slices(no_table, UINT64_MAX), 300000 / 8); /* one collection */
    assert_true(want > 6 * 60000 + 300000 / 8);
    assert_int_equal(fuel_in_slices(garbage, 997), want);
    assert_int_equal(fuel_in_slices(garbage, 30011), want);
}

static void a_collection_that_cannot_be_paid_stops_before_the_allocation(void **state) {
    (void)state;
    struct cell c;
    const struct wasm_event *ev;
    cell_open(&c, garbage);
    start(&c, "f", 0);
    do {
        c.store->budget = 1000; /* enough for the loop, not for the table */
        ev = wasm_run(c.store, UINT64_MAX);
    } while (ev->outcome == WASM_OUT_OF_FUEL && ev->needed < 30000);
    assert_int_equal(ev->outcome, WASM_OUT_OF_FUEL);
    assert_int_equal(c.engine->work < 300000, true);
    uint64_t used = wasm_fuel_used(c.store);
    wasm_fuel_add(c.store, ev->needed - c.store->budget);
    ev = wasm_run(c.store, UINT64_MAX);
    assert_true(wasm_fuel_used(c.store) - used >= 300000 / 8);
    cell_close(&c);
}

/* ---- Instructions that do more than one thing ---- */

static void many_arguments_and_results_are_paid(void **state) {
    (void)state;
    /* 16 parameters and 9 results: 3 more than a call costs. */
    expect_fuel("(module (func $g (param i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64"
                "      i64 i64) (result i32 i32 i32 i32 i32 i32 i32 i32 i32)"
                "    i32.const 1 i32.const 1 i32.const 1 i32.const 1 i32.const 1 i32.const 1"
                "    i32.const 1 i32.const 1 i32.const 1)"
                "  (func (export \"f\") (param i32)"
                "    i64.const 1 i64.const 1 i64.const 1 i64.const 1 i64.const 1 i64.const 1"
                "    i64.const 1 i64.const 1 i64.const 1 i64.const 1 i64.const 1 i64.const 1"
                "    i64.const 1 i64.const 1 i64.const 1 i64.const 1"
                "    call $g drop drop drop drop drop drop drop drop drop))",
                16 + (1 + 3) + 9);
    expect_fuel("(module (func $g (param i32 i32 i32 i32 i32 i32 i32 i32))"
                "  (func (export \"f\") (param i32)"
                "    i32.const 1 i32.const 1 i32.const 1 i32.const 1 i32.const 1 i32.const 1"
                "    i32.const 1 i32.const 1 return_call $g))",
                8 + (1 + 1));
}

static void many_fields_are_paid(void **state) {
    (void)state;
    expect_fuel("(module (type $s (struct (field i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32"
                "      i32 i32 i32 i32)))"
                "  (func (export \"f\") (param i32) (drop (struct.new_default $s))))",
                1 + 2);
}

/* Three frames are left; the clause that catches is the ninth of its function. */
static void frames_and_clauses_that_a_throw_passes_are_paid(void **state) {
    (void)state;
    expect_fuel("(module (tag $t) (tag $u)"
                "  (func $a (throw $t)) (func $b (call $a)) (func $c (call $b))"
                "  (func (export \"f\") (param i32)"
                "    (block $h (try_table (catch $u $h) (catch $u $h) (catch $u $h) (catch $u $h)"
                "      (catch $u $h) (catch $u $h) (catch $u $h) (catch $u $h) (catch $t $h)"
                "      (call $c)))))",
                3 + (1 + 3 + 1));
    expect_fuel("(module (tag $t) (func $a (param exnref) (throw_ref (local.get 0)))"
                "  (func (export \"f\") (param i32)"
                "    (block $h (try_table (catch_all $h) (block $r (result exnref)"
                "      (try_table (catch_all_ref $r) (throw $t)) (unreachable)) (call $a)))))",
                1 + 1 + 1 + (1 + 1));
}

static void a_host_call_pays_for_its_bytes_before_it_is_made(void **state) {
    (void)state;
    for (uint64_t slice = 1; slice < 60; slice += 3) {
        struct cell c = {.engine = wasm_engine_new(NULL)};
        struct err err;
        const uint32_t params[] = {WASM_V128, WASM_I32};
        const struct wasm_func_type put = {.params = params, .n_params = 2};
        c.module = load(c.engine, "(module (import \"env\" \"put\" (func $put (param v128 i32)))"
                                  "  (func (export \"f\") (param i32)"
                                  "    (call $put (v128.const i64x2 1 2) (local.get 0))))");
        c.store = wasm_store_new(c.engine);
        assert_int_equal(wasm_host_func_sized(c.store, "env", "put", &put, 5, 0, &err), -1);
        assert_int_equal(wasm_host_func_sized(c.store, "env", "put", &put, 5, 2, &err), -1);
        assert_int_equal(wasm_host_func_sized(c.store, "env", "put", &put, 5, 1, &err), 0);
        assert_int_equal(wasm_instance_new(c.store, c.module, NULL, 0, &c.instance, &err), 0);
        assert_int_equal(wasm_run(c.store, UINT64_MAX)->outcome, WASM_DONE);
        start(&c, "f", 81);
        wasm_fuel_add(c.store, 2 + 1 + 5 + 10); /* one too few */
        const struct wasm_event *ev;
        while ((ev = wasm_run(c.store, slice))->outcome == WASM_SLICE)
            ;
        assert_int_equal(ev->outcome, WASM_OUT_OF_FUEL);
        assert_int_equal(ev->needed, 1 + 5 + 11);
        assert_int_equal(wasm_fuel_used(c.store), 2);
        move(&c);
        wasm_fuel_add(c.store, 1);
        assert_int_equal(wasm_run(c.store, slice)->outcome, WASM_HOST);
        assert_int_equal(wasm_fuel_used(c.store), 2 + 1 + 5 + 11);
        cell_close(&c);
    }
}

static void memories_and_tables_of_a_new_instance_are_paid(void **state) {
    (void)state;
    struct wasm_engine *e = wasm_engine_new(NULL);
    struct wasm_module *m = load(e, "(module (memory 2) (memory 1) (table 80 funcref)"
                                    "  (data (i32.const 0) \"x\"))");
    struct wasm_store *s = wasm_store_new(e);
    struct wasm_instance *i;
    struct err err;
    wasm_fuel_add(s, 3 * 1024 + 9);
    assert_int_equal(wasm_instance_new(s, m, NULL, 0, &i, &err), 0);
    const struct wasm_event *ev = wasm_run(s, UINT64_MAX);
    assert_int_equal(ev->outcome, WASM_OUT_OF_FUEL);
    assert_int_equal(ev->needed, 3 * 1024 + 10);
    wasm_fuel_add(s, 3);
    assert_int_equal(wasm_run(s, UINT64_MAX)->outcome, WASM_DONE);
    assert_int_equal(wasm_fuel_used(s), 3 * 1024 + 10 + 2);
    wasm_store_free(s);
    wasm_module_unref(m);
    wasm_engine_free(e);
}

/* A mapping that moves at each page takes time by the square of its size. */
static void growing_by_single_pages_does_work_by_the_pages(void **state) {
    (void)state;
    struct cell c;
    cell_open(&c, "(module (memory 16) (func (export \"f\") (param i32)"
                  "  (loop $l (drop (memory.grow (i32.const 1)))"
                  "    (br_if $l (local.tee 0 (i32.sub (local.get 0) (i32.const 1)))))))");
    start(&c, "f", 800);
    assert_int_equal(wasm_run(c.store, UINT64_MAX)->outcome, WASM_DONE);
    assert_in_range(c.engine->work, 0, 4 * 816 * 16);
    cell_close(&c);
}

UNIT_MAIN(cmocka_unit_test(two_blocks_at_one_word_lose_no_fuel),
          cmocka_unit_test(a_self_paying_instruction_at_a_block_start_loses_no_fuel),
          cmocka_unit_test(a_long_block_without_code_is_paid_whole),
          cmocka_unit_test(a_stop_among_empty_loops_does_bounded_work),
          cmocka_unit_test(a_branch_table_behind_empty_loops_does_bounded_work),
          cmocka_unit_test(a_collection_is_paid_by_what_it_looks_at),
          cmocka_unit_test(a_collection_costs_the_same_in_slices),
          cmocka_unit_test(a_collection_that_cannot_be_paid_stops_before_the_allocation),
          cmocka_unit_test(many_arguments_and_results_are_paid),
          cmocka_unit_test(many_fields_are_paid),
          cmocka_unit_test(frames_and_clauses_that_a_throw_passes_are_paid),
          cmocka_unit_test(a_host_call_pays_for_its_bytes_before_it_is_made),
          cmocka_unit_test(memories_and_tables_of_a_new_instance_are_paid),
          cmocka_unit_test(growing_by_single_pages_does_work_by_the_pages))
