/* One budget of bytes for all that a store holds. */
#include "tests/unit/wasm_cell.h"

#include "wasm/engine.h"

enum { PAGE = 65536, BUDGET = 4 * PAGE };

static const struct wasm_config small = {.store_bytes = BUDGET};

/* The i32 that an export gives. */
static int32_t ask(struct cell *c, const char *name, int32_t arg) {
    start(c, name, arg);
    const struct wasm_event *ev = wasm_run(c->store, UINT64_MAX);
    assert_int_equal(ev->outcome, WASM_DONE);
    return ev->values[0].i32;
}

static int make(const char *text, struct err *err) {
    struct wasm_engine *e = wasm_engine_new(&small);
    struct wasm_module *m = load(e, text);
    struct wasm_store *s = wasm_store_new(e);
    struct wasm_instance *i;
    *err = (struct err){0};
    int rc = wasm_instance_new(s, m, NULL, 0, &i, err);
    if (rc < 0)
        assert_int_equal(wasm_store_bytes(s), 0); /* nothing of it stays */
    wasm_store_free(s);
    wasm_module_unref(m);
    wasm_engine_free(e);
    return rc;
}

static void memories_and_tables_of_an_instance_count_together(void **state) {
    (void)state;
    struct err err;
    assert_int_equal(make("(module (memory 3))", &err), 0);
    assert_int_equal(make("(module (memory 4))", &err), -1);
    assert_int_equal(err.code, ERR_LIMIT);
    assert_non_null(strstr(err.text, "262144 bytes"));
    assert_int_equal(make("(module (memory 2) (memory 2))", &err), -1);
    assert_int_equal(make("(module (table 30000 funcref))", &err), 0);
    assert_int_equal(make("(module (table 33000 funcref))", &err), -1);
    assert_int_equal(make("(module (memory 2) (table 15000 funcref))", &err), 0);
    assert_int_equal(make("(module (memory 2) (table 17000 funcref))", &err), -1);
}

/* A long body counts though it is never called. */
static void code_and_globals_count(void **state) {
    (void)state;
    struct err err;
    struct buf text DEFER(buf_done) = BUF(1 << 22);
    assert_true(buf_addf(&text, "(module (memory 1) (func "));
    for (int i = 0; i < 66000; i++)
        assert_true(buf_addf(&text, "nop "));
    assert_true(buf_addf(&text, "))"));
    assert_int_equal(make(text.data, &err), -1);
    text.len = 0;
    assert_true(buf_addf(&text, "(module "));
    for (int i = 0; i < 9000; i++)
        assert_true(buf_addf(&text, "(global i32 (i32.const 0))"));
    assert_true(buf_addf(&text, ")"));
    assert_int_equal(make(text.data, &err), -1);
}

static const char grows[] =
    "(module (memory 1) (table $t 100 funcref)"
    "  (func (export \"pages\") (param i32) (result i32) (memory.grow (local.get 0)))"
    "  (func (export \"elems\") (param i32) (result i32)"
    "    (table.grow $t (ref.null func) (local.get 0))))";

static void growing_stops_at_the_budget(void **state) {
    (void)state;
    struct cell c;
    cell_open_with(&c, grows, &small);
    uint64_t before = wasm_fuel_used(c.store);
    assert_int_equal(ask(&c, "pages", 3), -1);
    assert_int_equal(wasm_fuel_used(c.store) - before, 2); /* a refused grow costs 1 */
    assert_int_equal(ask(&c, "pages", 1), 1);
    assert_int_equal(ask(&c, "elems", 16384), -1); /* another two pages */
    assert_int_equal(ask(&c, "elems", 8192), 100);
    assert_int_equal(ask(&c, "pages", 1), -1);
    move(&c);
    assert_int_equal(ask(&c, "pages", 1), -1);
    assert_int_equal(ask(&c, "elems", 4096), 8292);
    cell_close(&c);
}

static const char lists[] =
    "(module (type $l (struct (field i64) (field (ref null $l)))) (tag $t (param i64 i64 i64 i64))"
    "  (global $kept (mut (ref null $l)) (ref.null $l)) (table $x 600 exnref)"
    "  (func (export \"keep\") (param i32) (result i32)"
    "    (loop $a (global.set $kept (struct.new $l (i64.const 1) (global.get $kept)))"
    "      (br_if $a (local.tee 0 (i32.sub (local.get 0) (i32.const 1)))))"
    "    (i32.const 1))"
    "  (func (export \"drop\") (param i32) (result i32)"
    "    (loop $a (drop (struct.new $l (i64.const 1) (ref.null $l)))"
    "      (br_if $a (local.tee 0 (i32.sub (local.get 0) (i32.const 1)))))"
    "    (i32.const 1))"
    "  (func (export \"throw\") (param i32) (result i32)"
    "    (loop $a (local.set 0 (i32.sub (local.get 0) (i32.const 1)))"
    "      (table.set $x (local.get 0) (block $h (result exnref)"
    "        (try_table (catch_all_ref $h)"
    "          (throw $t (i64.const 1) (i64.const 1) (i64.const 1) (i64.const 1))) (unreachable)))"
    "      (br_if $a (local.get 0)))"
    "    (i32.const 1)))";

static void objects_stop_at_the_budget_and_garbage_does_not(void **state) {
    (void)state;
    struct cell c;
    cell_open_with(&c, lists, &small);
    wasm_fuel_add(c.store, 100000000);
    assert_int_equal(ask(&c, "drop", 50000), 1); /* ten times the budget, in all */
    assert_int_equal(ask(&c, "keep", 3000), 1);
    start(&c, "keep", 4000);
    assert_int_equal(wasm_run(c.store, UINT64_MAX)->outcome, WASM_TRAPPED);
    assert_true(wasm_store_over_budget(c.store));
    assert_true(wasm_store_bytes(c.store) <= BUDGET);
    cell_close(&c);
}

static void exceptions_stop_at_the_budget(void **state) {
    (void)state;
    struct cell c;
    const struct wasm_config tiny = {.store_bytes = 30000};
    cell_open_with(&c, lists, &tiny);
    assert_int_equal(ask(&c, "throw", 100), 1);
    start(&c, "throw", 600);
    const struct wasm_event *ev = wasm_run(c.store, UINT64_MAX);
    assert_int_equal(ev->outcome, WASM_TRAPPED);
    assert_string_equal(ev->text, "too many exceptions");
    cell_close(&c);
}

/* Whatever way a store came to be, it has used the same. */
static void the_count_survives_saves_and_forks(void **state) {
    (void)state;
    struct cell c;
    struct wasm_store *forked;
    struct err err;
    cell_open_with(&c, lists, &small);
    assert_int_equal(ask(&c, "keep", 1000), 1);
    assert_int_equal(ask(&c, "throw", 50), 1);
    uint64_t want = wasm_store_bytes(c.store);
    assert_true(want > 1000 * 48);
    assert_int_equal(wasm_fork(c.store, &forked, &err), 0);
    assert_int_equal(wasm_store_bytes(forked), want);
    move(&c);
    assert_int_equal(wasm_store_bytes(c.store), want);
    wasm_store_free(forked);
    cell_close(&c);
}

/* A state of a store with a larger budget is refused. */
static void a_state_over_the_budget_is_refused(void **state) {
    (void)state;
    struct cell big, c;
    struct wasm_store *s;
    struct err err;
    struct buf bytes DEFER(buf_done) = BUF(1 << 24);
    cell_open(&big, lists);
    assert_int_equal(ask(&big, "keep", 9000), 1);
    assert_int_equal(wasm_capture(big.store, &bytes, &err), 0);
    cell_open_with(&c, lists, &small);
    struct wasm_modules modules = {find, c.module};
    assert_int_equal(wasm_resume(c.engine, bytes.data, bytes.len, &modules, &s, &err), -1);
    cell_close(&c);
    cell_close(&big);
}

UNIT_MAIN(cmocka_unit_test(memories_and_tables_of_an_instance_count_together),
          cmocka_unit_test(code_and_globals_count), cmocka_unit_test(growing_stops_at_the_budget),
          cmocka_unit_test(objects_stop_at_the_budget_and_garbage_does_not),
          cmocka_unit_test(exceptions_stop_at_the_budget),
          cmocka_unit_test(the_count_survives_saves_and_forks),
          cmocka_unit_test(a_state_over_the_budget_is_refused))
