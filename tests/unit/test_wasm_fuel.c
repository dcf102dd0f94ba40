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

enum { EMPTY_LOOPS = 200000, WORK_PER_FUEL = 40 };

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

UNIT_MAIN(cmocka_unit_test(two_blocks_at_one_word_lose_no_fuel),
          cmocka_unit_test(a_self_paying_instruction_at_a_block_start_loses_no_fuel),
          cmocka_unit_test(a_long_block_without_code_is_paid_whole),
          cmocka_unit_test(a_stop_among_empty_loops_does_bounded_work))
