/* The engine through its API: fuel at every stop, host calls, capture, fork, limits, hostile input.
 */
#include "tests/unit/unit.h"

#include <unistd.h>

#include "base/defer.h"
#include "tests/unit/wasm_cell.h"

static const char loops[] =
    "(module (import \"env\" \"ask\" (func $ask (param i32) (result i32)))"
    "  (memory 1) (global $g (mut i64) (i64.const 0))"
    "  (data (i32.const 8) \"seed\")"
    "  (func $fib (export \"fib\") (param i32) (result i32)"
    "    (if (result i32) (i32.lt_u (local.get 0) (i32.const 2)) (then (local.get 0))"
    "      (else (i32.add (call $fib (i32.sub (local.get 0) (i32.const 1)))"
    "                     (call $fib (i32.sub (local.get 0) (i32.const 2)))))))"
    "  (func (export \"mix\") (param i32) (result i32) (local i32 i32)"
    "    (loop $l"
    "      (i32.store (i32.and (local.get 1) (i32.const 0xfffc)) (local.get 2))"
    "      (local.set 2 (i32.add (i32.mul (local.get 2) (i32.const 31)) (local.get 1)))"
    "      (global.set $g (i64.add (global.get $g) (i64.extend_i32_u (local.get 2))))"
    "      (memory.fill (i32.const 100) (local.get 2) (i32.const 130))"
    "      (br_if $l (i32.lt_u (local.tee 1 (i32.add (local.get 1) (i32.const 4))) (local.get 0))))"
    "    (i32.xor (local.get 2) (i32.load (i32.const 100))))"
    "  (func (export \"asks\") (param i32) (result i32)"
    "    (i32.add (call $ask (local.get 0)) (call $ask (i32.const 7))))"
    "  (func (export \"traps\") (param i32) (result i32)"
    "    (drop (i32.const 1)) (drop (i32.const 2))"
    "    (i32.add (i32.load (i32.const -4)) (i32.const 3)))"
    "  (func $deep (export \"deep\") (param i32) (result i32)"
    "    (i32.add (call $deep (local.get 0)) (i32.const 1)))"
    "  (func (export \"grow\") (param i32) (result i32) (memory.grow (local.get 0))))";

/* ---- Fuel ---- */

static void stops_at_every_amount_of_fuel_leave_results_and_fuel_equal(void **state) {
    (void)state;
    static const char *const names[] = {"fib", "mix"};
    for (int k = 0; k < 2; k++) {
        struct cell a, b;
        cell_open(&a, loops);
        start(&a, names[k], k ? 40 : 9);
        const struct wasm_event *ev = wasm_run(a.store, UINT64_MAX);
        assert_int_equal(ev->outcome, WASM_DONE);
        int32_t want = ev->values[0].i32;
        for (uint64_t slice = 1; slice < 60; slice++) {
            cell_open(&b, loops);
            start(&b, names[k], k ? 40 : 9);
            while ((ev = wasm_run(b.store, slice))->outcome == WASM_SLICE)
                if (slice % 7 == 0)
                    move(&b);
            assert_int_equal(ev->outcome, WASM_DONE);
            assert_int_equal(ev->values[0].i32, want);
            assert_int_equal(wasm_fuel_used(b.store), wasm_fuel_used(a.store));
            uint8_t ha[32], hb[32];
            wasm_store_hash(a.store, ha, NULL);
            wasm_store_hash(b.store, hb, NULL);
            assert_memory_equal(ha, hb, 32);
            cell_close(&b);
        }
        cell_close(&a);
    }
}

/* A local is computed before a loop and used at its start, where another value was made last. */
static void a_loop_uses_its_locals_and_not_the_last_value(void **state) {
    (void)state;
    struct cell c;
    cell_open(&c,
              "(module (import \"env\" \"ask\" (func (param i32) (result i32)))"
              "  (func (export \"sum\") (param i32) (result i32) (local i32 i32 i32)"
              "    (local.set 1 (i32.add (local.get 0) (i32.const 1)))"
              "    (loop $l"
              "      (local.set 2 (i32.add (local.get 2) (i32.mul (local.get 1) (i32.const 3))))"
              "      (local.set 1 (i32.mul (local.get 1) (i32.const 2)))"
              "      (local.set 3 (i32.add (local.get 3) (i32.const 1)))"
              "      (br_if $l (i32.lt_u (local.get 3) (i32.const 5))))"
              "    (local.get 2)))");
    start(&c, "sum", 6);
    const struct wasm_event *ev = wasm_run(c.store, UINT64_MAX);
    assert_int_equal(ev->outcome, WASM_DONE);
    assert_int_equal(ev->values[0].i32, 7 * 3 * 31);
    cell_close(&c);
}

static void out_of_fuel_says_what_is_needed_and_goes_on_with_more(void **state) {
    (void)state;
    struct wasm_engine *e = wasm_engine_new(NULL);
    struct wasm_module *m = load(e, "(module (func (export \"f\") (result i32)"
                                    " (i32.add (i32.const 1) (i32.const 2))))");
    struct wasm_store *s = wasm_store_new(e);
    struct wasm_instance *i;
    struct wasm_extern f;
    struct err err;
    assert_int_equal(wasm_instance_new(s, m, NULL, 0, &i, &err), 0);
    assert_int_equal(wasm_run(s, UINT64_MAX)->outcome, WASM_DONE);
    assert_true(wasm_export(i, "f", 1, &f));
    assert_int_equal(wasm_call(s, f, NULL, 0, &err), 0);
    for (int k = 0; k < 3; k++) {
        const struct wasm_event *ev = wasm_run(s, UINT64_MAX);
        assert_int_equal(ev->outcome, WASM_OUT_OF_FUEL);
        assert_int_equal(ev->needed, 1);
        assert_int_equal(wasm_fuel_used(s), k);
        wasm_fuel_add(s, 1);
    }
    const struct wasm_event *ev = wasm_run(s, UINT64_MAX);
    assert_int_equal(ev->outcome, WASM_DONE);
    assert_int_equal(ev->values[0].i32, 3);
    assert_int_equal(wasm_fuel_left(s), 0);
    wasm_store_free(s);
    wasm_module_unref(m);
    wasm_engine_free(e);
}

static void a_trap_is_paid_and_the_rest_of_its_block_is_not(void **state) {
    (void)state;
    struct cell c;
    cell_open(&c, loops);
    uint64_t before = wasm_fuel_used(c.store);
    start(&c, "traps", 0);
    const struct wasm_event *ev = wasm_run(c.store, UINT64_MAX);
    assert_int_equal(ev->outcome, WASM_TRAPPED);
    assert_string_equal(ev->text, "out of bounds memory access");
    /* const, const, const, load; const and add were never reached. */
    assert_int_equal(wasm_fuel_used(c.store) - before, 4);
    assert_int_equal(wasm_frames(c.store), 1);
    cell_close(&c);
}

/* ---- Host calls ---- */

static void a_host_call_is_a_yield_with_a_number(void **state) {
    (void)state;
    struct cell c;
    struct err err;
    cell_open(&c, loops);
    start(&c, "asks", 20);
    const struct wasm_event *ev = wasm_run(c.store, UINT64_MAX);
    assert_int_equal(ev->outcome, WASM_HOST);
    assert_string_equal(ev->module, "env");
    assert_int_equal(ev->values[0].i32, 20);
    assert_int_equal(ev->sequence, 1);

    struct wasm_extern f;
    assert_true(wasm_export(c.instance, "fib", 3, &f));
    assert_int_equal(wasm_call(c.store, f, &(struct wasm_value){.type = WASM_I32}, 1, &err), -1);
    assert_int_equal(err.code, ERR_BUSY);
    assert_int_equal(wasm_answer(c.store, &(struct wasm_value){.type = WASM_I64}, 1, &err), -1);

    struct wasm_value answer = wasm_i32(5);
    assert_int_equal(wasm_answer(c.store, &answer, 1, &err), 0);
    ev = wasm_run(c.store, UINT64_MAX);
    assert_int_equal(ev->sequence, 2);
    answer.i32 = 6;
    assert_int_equal(wasm_answer(c.store, &answer, 1, &err), 0);
    ev = wasm_run(c.store, UINT64_MAX);
    assert_int_equal(ev->outcome, WASM_DONE);
    assert_int_equal(ev->values[0].i32, 11);
    cell_close(&c);
}

static void a_pending_host_call_is_pending_after_resume(void **state) {
    (void)state;
    struct cell c;
    struct err err;
    cell_open(&c, loops);
    start(&c, "asks", 20);
    assert_int_equal(wasm_run(c.store, UINT64_MAX)->outcome, WASM_HOST);
    move(&c);
    const struct wasm_event *ev = wasm_run(c.store, UINT64_MAX);
    assert_int_equal(ev->outcome, WASM_HOST);
    assert_int_equal(ev->sequence, 1);
    assert_int_equal(ev->values[0].i32, 20);
    struct wasm_value answer = wasm_i32(1);
    assert_int_equal(wasm_answer(c.store, &answer, 1, &err), 0);
    move(&c); /* answered, not yet run */
    assert_int_equal(wasm_run(c.store, UINT64_MAX)->outcome, WASM_HOST);
    assert_int_equal(wasm_answer(c.store, &answer, 1, &err), 0);
    ev = wasm_run(c.store, UINT64_MAX);
    assert_int_equal(ev->outcome, WASM_DONE);
    assert_int_equal(ev->values[0].i32, 2);
    cell_close(&c);
}

/* ---- Fork ---- */

static void forks_go_their_own_ways(void **state) {
    (void)state;
    struct cell a, b;
    struct err err;
    cell_open(&a, loops);
    start(&a, "grow", 40); /* past the size from which pages are shared */
    assert_int_equal(wasm_run(a.store, UINT64_MAX)->outcome, WASM_DONE);
    start(&a, "mix", 400);
    assert_int_equal(wasm_run(a.store, 500)->outcome, WASM_SLICE);
    b = a;
    assert_int_equal(wasm_fork(a.store, &b.store, &err), 0);
    uint8_t ha[32], hb[32];
    wasm_store_hash(a.store, ha, NULL);
    wasm_store_hash(b.store, hb, NULL);
    assert_memory_equal(ha, hb, 32);

    const struct wasm_event *ev = wasm_run(a.store, UINT64_MAX);
    assert_int_equal(ev->outcome, WASM_DONE);
    int32_t want = ev->values[0].i32;
    struct wasm_store *third;
    assert_int_equal(wasm_fork(a.store, &third, &err), 0); /* after a ran: dirty pages are copied */
    wasm_store_hash(b.store, hb, NULL);
    assert_memory_equal(ha, hb, 32);
    ev = wasm_run(b.store, UINT64_MAX);
    assert_int_equal(ev->values[0].i32, want);
    assert_int_equal(wasm_fuel_used(a.store), wasm_fuel_used(b.store));
    wasm_store_hash(a.store, ha, NULL);
    wasm_store_hash(b.store, hb, NULL);
    assert_memory_equal(ha, hb, 32);
    wasm_store_hash(third, hb, NULL);
    assert_memory_equal(ha, hb, 32);
    wasm_store_free(third);
    wasm_store_free(b.store);
    cell_close(&a);
}

/* ---- Objects ---- */

static const char objects[] =
    "(module (type $node (struct (field $next (ref null $node)) (field $v (mut i32))))"
    "  (type $bytes (array (mut i8)))"
    "  (global $kept (mut (ref null $node)) (ref.null $node))"
    "  (func (export \"list\") (param i32) (result i32) (local $sum i32) (local $n (ref null "
    "$node))"
    "    (loop $l"
    "      (drop (array.new_default $bytes (i32.const 500)))"
    "      (global.set $kept (struct.new $node (if (result (ref null $node)) (i32.rem_u (local.get "
    "0) (i32.const 4))"
    "        (then (global.get $kept)) (else (ref.null $node))) (local.get 0)))"
    "      (br_if $l (local.tee 0 (i32.sub (local.get 0) (i32.const 1)))))"
    "    (local.set $n (global.get $kept))"
    "    (loop $m (if (ref.is_null (local.get $n)) (then (return (local.get $sum))))"
    "      (local.set $sum (i32.add (local.get $sum) (struct.get $node $v (local.get $n))))"
    "      (local.set $n (struct.get $node $next (local.get $n))) (br $m))"
    "    (unreachable))"
    "  (func (export \"hoard\") (param i32) (result i32)"
    "    (loop $l (global.set $kept (struct.new $node (global.get $kept) (i32.const 1))) (br $l)) "
    "(unreachable)))";

static void garbage_goes_and_what_is_held_stays(void **state) {
    (void)state;
    struct wasm_config small = {.heap_slots =
                                    200000}; /* the arrays alone would take 500 times that */
    struct cell a, b;
    cell_open_with(&a, objects, &small);
    start(&a, "list", 3003);
    const struct wasm_event *ev = wasm_run(a.store, UINT64_MAX);
    assert_int_equal(ev->outcome, WASM_DONE);
    assert_int_equal(ev->values[0].i32, 1 + 2 + 3 + 4);
    cell_open_with(&b, objects, &small);
    start(&b, "list", 3003);
    for (int i = 0; (ev = wasm_run(b.store, 9777))->outcome == WASM_SLICE; i++) {
        if (i % 3)
            move(&b);
        struct wasm_store *copy;
        assert_int_equal(wasm_fork(b.store, &copy, NULL), 0);
        wasm_store_free(b.store);
        b.store = copy;
    }
    assert_int_equal(ev->values[0].i32, 10);
    assert_int_equal(wasm_fuel_used(a.store), wasm_fuel_used(b.store));
    uint8_t ha[32], hb[32];
    wasm_store_hash(a.store, ha, NULL);
    wasm_store_hash(b.store, hb, NULL);
    assert_memory_equal(ha, hb, 32);
    cell_close(&a);
    cell_close(&b);
}

static void a_full_heap_is_a_trap(void **state) {
    (void)state;
    struct wasm_config small = {.heap_slots = 100000};
    struct cell c;
    cell_open_with(&c, objects, &small);
    start(&c, "hoard", 0);
    const struct wasm_event *ev = wasm_run(c.store, UINT64_MAX);
    assert_int_equal(ev->outcome, WASM_TRAPPED);
    assert_string_equal(ev->text, "out of memory");
    cell_close(&c);
}

/* ---- Limits and bad input ---- */

static void endless_recursion_is_a_trap_at_the_same_fuel_for_each_limit(void **state) {
    (void)state;
    struct wasm_config small = {.frames = 100};
    struct cell c;
    cell_open_with(&c, loops, &small);
    uint64_t before = wasm_fuel_used(c.store);
    start(&c, "deep", 1);
    const struct wasm_event *ev = wasm_run(c.store, UINT64_MAX);
    assert_int_equal(ev->outcome, WASM_TRAPPED);
    assert_string_equal(ev->text, "call stack exhausted");
    assert_int_equal(wasm_frames(c.store), 100);
    assert_int_equal(wasm_fuel_used(c.store) - before, 200);
    cell_close(&c);
}

static void growing_is_limited_by_configuration(void **state) {
    (void)state;
    struct wasm_config small = {.memory_pages = 3};
    struct cell c;
    cell_open_with(&c, loops, &small);
    start(&c, "grow", 2);
    assert_int_equal(wasm_run(c.store, UINT64_MAX)->values[0].i32, 1);
    uint64_t before = wasm_fuel_used(c.store);
    start(&c, "grow", 1);
    assert_int_equal(wasm_run(c.store, UINT64_MAX)->values[0].i32, -1);
    assert_int_equal(wasm_fuel_used(c.store) - before, 2); /* a failed grow costs 1 */
    cell_close(&c);
}

static void an_import_that_was_not_granted_is_named(void **state) {
    (void)state;
    struct wasm_engine *e = wasm_engine_new(NULL);
    struct wasm_module *m = load(e, "(module (import \"env\" \"http_get\" (func)))");
    struct wasm_store *s = wasm_store_new(e);
    struct wasm_instance *i;
    struct err err;
    assert_int_equal(wasm_instance_new(s, m, NULL, 0, &i, &err), -1);
    assert_int_equal(err.code, ERR_DENIED);
    assert_non_null(strstr(err.text, "env.http_get"));
    wasm_store_free(s);
    wasm_module_unref(m);
    wasm_engine_free(e);
}

static void a_damaged_state_is_refused(void **state) {
    (void)state;
    struct cell c;
    cell_open(&c, loops);
    start(&c, "fib", 12);
    assert_int_equal(wasm_run(c.store, 300)->outcome, WASM_SLICE);
    struct buf bytes DEFER(buf_done) = BUF(1 << 24);
    struct wasm_modules modules = {find, c.module};
    struct wasm_store *s = NULL;
    struct err err;
    assert_int_equal(wasm_capture(c.store, &bytes, &err), 0);
    for (size_t i = 0; i < bytes.len; i++) {
        bytes.data[i] ^= 0x20;
        assert_int_equal(wasm_resume(c.engine, bytes.data, bytes.len, &modules, &s, &err), -1);
        bytes.data[i] ^= 0x20;
    }
    for (size_t n = 0; n < bytes.len; n++)
        assert_int_equal(wasm_resume(c.engine, bytes.data, n, &modules, &s, &err), -1);
    bytes.data[8]++;
    assert_int_equal(wasm_resume(c.engine, bytes.data, bytes.len, &modules, &s, &err), -1);
    assert_int_equal(err.code, ERR_UNSUPPORTED);
    cell_close(&c);
}

/* ---- No memory ---- */

struct purse {
    size_t left; /* allocations until one fails; all after it work again */
    size_t held; /* bytes */
};

static void *purse_realloc(void *ctx, void *p, size_t old_size, size_t new_size) {
    struct purse *purse = ctx;
    if (new_size && purse->left && --purse->left == 0)
        return NULL;
    purse->held += new_size - (p ? old_size : 0);
    if (new_size == 0) {
        free(p);
        return NULL;
    }
    return realloc(p, new_size);
}

/* Everything once; false as soon as something was refused. */
static bool whole_life(struct wasm_engine *e, const struct buf *binary) {
    struct wasm_module *m DEFER(wasm_module_unrefp) = NULL;
    struct wasm_store *s DEFER(wasm_store_freep) = NULL, *forked DEFER(wasm_store_freep) = NULL;
    struct wasm_store *resumed DEFER(wasm_store_freep) = NULL;
    struct buf state DEFER(buf_done) = BUF(1 << 20);
    struct wasm_diag diag;
    struct wasm_instance *i;
    struct wasm_extern f;
    const struct wasm_func_type ask = {.params = (uint32_t[]){WASM_I32},
                                       .results = (uint32_t[]){WASM_I32},
                                       .n_params = 1,
                                       .n_results = 1};
    if (wasm_module_load(e, binary->data, binary->len, WASM_3_0, &m, &diag) < 0 ||
        !(s = wasm_store_new(e)) || wasm_host_func(s, "env", "ask", &ask, 0, NULL) < 0)
        return false;
    wasm_fuel_add(s, 10000);
    if (wasm_instance_new(s, m, NULL, 0, &i, NULL) < 0 ||
        wasm_run(s, UINT64_MAX)->outcome != WASM_DONE)
        return false;
    struct wasm_value v = wasm_i32(9);
    const struct wasm_modules modules = {find, m};
    if (!wasm_export(i, "fib", 3, &f) || wasm_call(s, f, &v, 1, NULL) < 0 ||
        wasm_run(s, 77)->outcome != WASM_SLICE || wasm_capture(s, &state, NULL) < 0 ||
        wasm_resume(e, state.data, state.len, &modules, &resumed, NULL) < 0 ||
        wasm_fork(s, &forked, NULL) < 0)
        return false;
    return wasm_run(s, UINT64_MAX)->outcome == WASM_DONE &&
           wasm_run(forked, UINT64_MAX)->outcome == WASM_DONE &&
           wasm_run(resumed, UINT64_MAX)->outcome == WASM_DONE;
}

static void every_failed_allocation_is_survived_and_nothing_leaks(void **state) {
    (void)state;
    struct wat_module wat = {0};
    struct wat_diags diags = {0};
    assert_int_equal(wat_encode(loops, sizeof loops - 1, 30, &wat, &diags), 0);
    bool done = false;
    for (size_t n = 1; !done; n++) {
        struct purse purse = {.left = n};
        struct wasm_config cfg = {.alloc = {purse_realloc, &purse}};
        struct wasm_engine *e = wasm_engine_new(&cfg);
        if (e) {
            done = whole_life(e, &wat.binary) && purse.left;
            wasm_engine_free(e);
        }
        assert_int_equal(purse.held, 0);
        assert_true(n < 1000);
    }
    wat_module_done(&wat);
}

static void untouched_memory_is_not_in_the_state(void **state) {
    (void)state;
    struct cell c;
    struct err err;
    cell_open(&c, "(module (memory 100) (data (i32.const 70000) \"initial\"))");
    struct buf bytes DEFER(buf_done) = BUF(1 << 20);
    assert_int_equal(wasm_capture(c.store, &bytes, &err), 0);
    assert_true(bytes.len < 300);
    cell_close(&c);
}

/* ---- Memories that get their bytes as they are reached ---- */

static const char pokes[] =
    "(module (import \"env\" \"ask\" (func $ask (param i32) (result i32)))"
    "  (memory $m 1 6) (memory $n 1) (data (i32.const 3) \"abc\")"
    "  (func (export \"plain\") (param i32) (result i32)"
    "    (i32.store8 (local.get 0) (i32.const 200))"
    "    (i32.add (i32.load8_u (local.get 0)) (i32.load8_u (i32.const 4))))"
    "  (func (export \"wide\") (param i32) (result i32)"
    "    (i32.store (i32.const 8) (i32.const 5))"
    "    (v128.store (local.get 0) (v128.const i32x4 1 2 3 4))"
    "    (i32.add (i32.load (i32.const 8)) (i32.load offset=12 (local.get 0))))"
    "  (func (export \"other\") (param i32) (result i32)"
    "    (i64.store $n (local.get 0) (i64.const 77))"
    "    (i32.add (i32.load8_u $n (local.get 0)) (i32.load8_u (i32.const 5))))"
    "  (func (export \"bulk\") (param i32) (result i32)"
    "    (memory.copy $n $m (local.get 0) (i32.const 3) (i32.const 3))"
    "    (memory.copy (i32.const 4) (i32.const 3) (i32.const 3))"
    "    (memory.fill (local.get 0) (i32.const 9) (i32.const 4))"
    "    (i32.add (i32.load8_u $n (local.get 0)) (i32.load8_u (local.get 0))))"
    "  (func (export \"grown\") (param i32) (result i32)"
    "    (drop (memory.grow (i32.const 2)))"
    "    (i32.store8 (i32.const 4) (i32.const 1))"
    "    (drop (memory.grow (i32.const 2)))"
    "    (i32.add (i32.load8_u (i32.const 4)) (i32.load (i32.add (local.get 0) (i32.const "
    "200000))))))";

/* The same call in a store of which all bytes are ready from the start. */
static void expect_same_when_ready(const char *name, int32_t at) {
    struct cell lazy, whole;
    uint8_t hashes[2][32];
    size_t size;
    struct wasm_extern memory = {WASM_MEMORY, 0};
    cell_open(&lazy, pokes);
    cell_open(&whole, pokes);
    assert_non_null(wasm_memory_bytes(whole.store, memory, &size));
    assert_int_equal(size, 65536);
    start(&lazy, name, at);
    start(&whole, name, at);
    const struct wasm_event *a = wasm_run(lazy.store, UINT64_MAX);
    const struct wasm_event *b = wasm_run(whole.store, UINT64_MAX);
    assert_int_equal(a->outcome, b->outcome);
    if (a->outcome == WASM_DONE)
        assert_int_equal(a->values[0].i32, b->values[0].i32);
    else
        assert_string_equal(a->text, b->text);
    assert_int_equal(wasm_fuel_used(lazy.store), wasm_fuel_used(whole.store));
    wasm_store_hash(lazy.store, hashes[0], NULL);
    wasm_store_hash(whole.store, hashes[1], NULL);
    assert_memory_equal(hashes[0], hashes[1], 32);
    cell_close(&lazy);
    cell_close(&whole);
}

static void bytes_that_come_when_they_are_reached_are_as_if_always_there(void **state) {
    (void)state;
    static const char *const names[] = {"plain", "wide", "other", "bulk", "grown"};
    static const int32_t places[] = {0,    3,    240,  255,   256,   257,   1000,  4079, 4080,
                                     4095, 4096, 4097, 65519, 65520, 65521, 65535, 65536};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        for (size_t p = 0; p < sizeof places / sizeof *places; p++)
            expect_same_when_ready(names[n], places[p]);
}

static void a_reached_byte_is_the_forks_and_the_states_too(void **state) {
    (void)state;
    static const int32_t places[] = {100, 3000, 5000};
    for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
        struct cell c;
        struct wasm_store *forked;
        uint8_t hashes[3][32];
        cell_open(&c, pokes);
        start(&c, "plain", places[p]);
        assert_int_equal(wasm_run(c.store, UINT64_MAX)->outcome, WASM_DONE);
        assert_int_equal(wasm_fork(c.store, &forked, NULL), 0);
        wasm_store_hash(forked, hashes[0], NULL);
        wasm_store_free(forked);
        move(&c);
        wasm_store_hash(c.store, hashes[1], NULL);
        move(&c); /* now from whole pages */
        wasm_store_hash(c.store, hashes[2], NULL);
        assert_memory_equal(hashes[0], hashes[1], 32);
        assert_memory_equal(hashes[1], hashes[2], 32);
        cell_close(&c);
    }
}

static void a_memory_of_no_pages_is_moved_and_hashed(void **state) {
    (void)state;
    struct cell c;
    struct wasm_store *forked;
    uint8_t hashes[2][32];
    cell_open(&c, "(module (memory 0) (memory 0) (memory 1))");
    wasm_store_hash(c.store, hashes[0], NULL);
    move(&c);
    assert_int_equal(wasm_fork(c.store, &forked, NULL), 0);
    wasm_store_hash(forked, hashes[1], NULL);
    assert_memory_equal(hashes[0], hashes[1], 32);
    wasm_store_free(forked);
    cell_close(&c);
}

/* Hands out bytes of its own that are resident already, and takes none back. */
struct ground {
    size_t used;
    uint8_t bytes[8 << 20];
};

static void *ground_realloc(void *ctx, void *p, size_t old_size, size_t new_size) {
    struct ground *g = ctx;
    size_t room = (new_size + 15) & ~(size_t)15;
    if (!new_size || g->used + room > sizeof g->bytes)
        return NULL;
    void *fresh = g->bytes + g->used;
    g->used += room;
    if (p)
        memcpy(fresh, p, old_size < new_size ? old_size : new_size);
    return fresh;
}

static size_t resident_bytes(void) {
    FILE *f = fopen("/proc/self/statm", "re");
    unsigned long total, resident;
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu %lu", &total, &resident), 2);
    fclose(f);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static void a_tiny_instance_takes_no_page_of_its_own(void **state) {
    (void)state;
    enum { COUNT = 1000 };
    struct ground *ground = malloc(sizeof *ground);
    struct cell c;
    struct wasm_store *stores[COUNT];
    assert_non_null(ground);
    memset(ground, 1, sizeof *ground);
    ground->used = 0;
    cell_open_with(&c, pokes, &(struct wasm_config){.alloc = {ground_realloc, ground}});
    size_t used = ground->used, resident = resident_bytes();
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(wasm_fork(c.store, &stores[i], NULL), 0);
        struct cell one = {c.engine, c.module, stores[i], wasm_instance_at(stores[i], 0)};
        start(&one, "plain", 100);
        assert_int_equal(wasm_run(stores[i], UINT64_MAX)->outcome, WASM_DONE);
    }
    assert_true((ground->used - used) / COUNT < 4096);
    assert_true((resident_bytes() - resident) / COUNT < 400);
    for (int i = 0; i < COUNT; i++)
        wasm_store_free(stores[i]);
    cell_close(&c);
    free(ground);
}

static void type_mismatches_say_what_was_wanted_and_found(void **state) {
    (void)state;
    /* (func (drop (i32.add (i32.const 1) (i64.const 2)))) */
    static const uint8_t bytes[] = {0, 'a',  's', 'm',  1, 0,    0, 0,    1,    4,
                                    1, 0x60, 0,   0,    3, 2,    1, 0,    10,   10,
                                    1, 8,    0,   0x41, 1, 0x42, 2, 0x6a, 0x1a, 0x0b};
    struct wasm_engine *e = wasm_engine_new(NULL);
    struct wasm_module *m;
    struct wasm_diag d;
    assert_int_equal(wasm_module_load(e, bytes, sizeof bytes, WASM_3_0, &m, &d), -1);
    assert_int_equal(d.fault, WASM_INVALID);
    assert_int_equal(d.offset, 27);
    assert_int_equal(d.n_expected, 2);
    assert_int_equal(d.expected[1], WASM_I32);
    assert_int_equal(d.n_found, 2);
    assert_int_equal(d.found[0], WASM_I32);
    assert_int_equal(d.found[1], WASM_I64);
    wasm_engine_free(e);
}

UNIT_MAIN(cmocka_unit_test(stops_at_every_amount_of_fuel_leave_results_and_fuel_equal),
          cmocka_unit_test(a_loop_uses_its_locals_and_not_the_last_value),
          cmocka_unit_test(out_of_fuel_says_what_is_needed_and_goes_on_with_more),
          cmocka_unit_test(a_trap_is_paid_and_the_rest_of_its_block_is_not),
          cmocka_unit_test(a_host_call_is_a_yield_with_a_number),
          cmocka_unit_test(a_pending_host_call_is_pending_after_resume),
          cmocka_unit_test(forks_go_their_own_ways),
          cmocka_unit_test(garbage_goes_and_what_is_held_stays),
          cmocka_unit_test(a_full_heap_is_a_trap),
          cmocka_unit_test(endless_recursion_is_a_trap_at_the_same_fuel_for_each_limit),
          cmocka_unit_test(growing_is_limited_by_configuration),
          cmocka_unit_test(an_import_that_was_not_granted_is_named),
          cmocka_unit_test(a_damaged_state_is_refused),
          cmocka_unit_test(every_failed_allocation_is_survived_and_nothing_leaks),
          cmocka_unit_test(untouched_memory_is_not_in_the_state),
          cmocka_unit_test(bytes_that_come_when_they_are_reached_are_as_if_always_there),
          cmocka_unit_test(a_reached_byte_is_the_forks_and_the_states_too),
          cmocka_unit_test(a_memory_of_no_pages_is_moved_and_hashed),
          cmocka_unit_test(a_tiny_instance_takes_no_page_of_its_own),
          cmocka_unit_test(type_mismatches_say_what_was_wanted_and_found))
