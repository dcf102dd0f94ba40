/* Saved states that somebody changed, with a right checksum: a value of another type is refused
   wherever it is, because the interpreter does not look again. */
#include "tests/unit/wasm_cell.h"

#include "base/defer.h"
#include "base/sha256.h"
#include "wasm/engine.h"

enum { HASH = 32 };

static void reseal(struct buf *state) {
    struct sha256 h;
    sha256_init(&h);
    sha256_add(&h, state->data, state->len - HASH);
    sha256_end(&h, (uint8_t *)state->data + state->len - HASH);
}

static size_t number(uint64_t v, uint8_t bytes[10]) {
    size_t n = 0;
    do {
        bytes[n] = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
        n++;
        v >>= 7;
    } while (v);
    return n;
}

/* Put one number for another of the same length, the last time that it occurs; the next to last
   with skip 1, and so on. */
static void forge_at(struct buf *state, uint64_t from, uint64_t to, int skip) {
    uint8_t old[10], new[10];
    size_t n = number(from, old);
    assert_int_equal(number(to, new), n);
    for (size_t i = state->len - HASH - n + 1; i-- > 0;)
        if (memcmp(state->data + i, old, n) == 0 && skip-- == 0) {
            memcpy(state->data + i, new, n);
            reseal(state);
            return;
        }
    fail_msg("the number is not in the state");
}

static void forge(struct buf *state, uint64_t from, uint64_t to) {
    forge_at(state, from, to, 0);
}

static void capture(struct cell *c, struct buf *state) {
    struct err err;
    assert_int_equal(wasm_capture(c->store, state, &err), 0);
}

static int resume(struct cell *c, const struct buf *state, struct err *err) {
    struct wasm_modules modules = {find, c->module};
    struct wasm_store *s = NULL;
    int rc = wasm_resume(c->engine, state->data, state->len, &modules, &s, err);
    wasm_store_free(s);
    return rc;
}

static void expect_refused(struct cell *c, const struct buf *state, const char *why) {
    struct err err;
    assert_int_equal(resume(c, state, &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
    assert_non_null(strstr(err.text, why));
}

static uint64_t func_ref(uint32_t index) {
    return UINT64_C(2) << 32 | index; /* of the first instance */
}

/* $small and $big have other types; index 1 and 2. $ask is a host function, index 0. */
#define TWO_FUNCS                                                                             \
    "(type $s (func (param i32) (result i32))) (type $b (func (param i64 i64) (result i64)))" \
    "(import \"env\" \"ask\" (func $ask (param i32) (result i32)))"                           \
    "(func $small (type $s) (local.get 0)) (func $big (type $b) (local.get 1))"               \
    "(elem declare func $small $big)"

static void stop_in(struct cell *c, const char *text, const char *name, uint64_t fuel) {
    cell_open(c, text);
    start(c, name, 7);
    assert_int_equal(wasm_run(c->store, fuel)->outcome, WASM_SLICE);
}

static void expect_forged_ref_refused(const char *text, uint64_t fuel, const char *why) {
    struct cell c;
    struct err err;
    struct buf state DEFER(buf_done) = BUF(1 << 22);
    stop_in(&c, text, "f", fuel);
    capture(&c, &state);
    assert_int_equal(resume(&c, &state, &err), 0); /* as it was: taken */
    forge(&state, func_ref(1), func_ref(2));
    expect_refused(&c, &state, why);
    cell_close(&c);
}

/* ---- One test for each place a reference can be ---- */

static void a_function_of_another_type_on_the_stack_is_refused(void **state) {
    (void)state;
    expect_forged_ref_refused("(module " TWO_FUNCS "(func (export \"f\") (param i32) (result i32)"
                              "  (call_ref $s (local.get 0) (ref.func $small))))",
                              2, "a frame has a value of another type");
}

static void a_function_of_another_type_in_a_local_is_refused(void **state) {
    (void)state;
    expect_forged_ref_refused("(module " TWO_FUNCS
                              "(func (export \"f\") (param i32) (result i32) (local (ref $s))"
                              "  (local.set 1 (ref.func $small)) (drop (i32.const 1))"
                              "  (call_ref $s (local.get 0) (local.get 1))))",
                              3, "a frame has a value of another type");
}

static void a_function_of_another_type_in_a_callers_frame_is_refused(void **state) {
    (void)state;
    expect_forged_ref_refused(
        "(module " TWO_FUNCS "(func $wait (drop (i32.const 1)) (drop (i32.const 2)))"
        "  (func (export \"f\") (param i32) (result i32) (local (ref null $s))"
        "  (local.set 1 (ref.func $small)) (call $wait)"
        "  (call_ref $s (local.get 0) (local.get 1))))",
        5, "a frame has a value of another type");
}

static void a_function_of_another_type_in_a_global_is_refused(void **state) {
    (void)state;
    expect_forged_ref_refused("(module " TWO_FUNCS "(global $g (mut (ref null $s)) (ref.null $s))"
                              "  (func (export \"f\") (param i32) (result i32)"
                              "  (global.set $g (ref.func $small)) (drop (i32.const 1))"
                              "  (call_ref $s (local.get 0) (global.get $g))))",
                              3, "a global has a value of another type");
}

static void a_function_of_another_type_in_a_table_is_refused(void **state) {
    (void)state;
    expect_forged_ref_refused(
        "(module " TWO_FUNCS "(table $t 3 (ref null $s))"
        "  (func (export \"f\") (param i32) (result i32)"
        "  (table.set $t (i32.const 1) (ref.func $small)) (drop (i32.const 1))"
        "  (call_ref $s (local.get 0) (table.get $t (i32.const 1)))))",
        4, "a table has an element of another type");
}

static void a_function_of_another_type_in_an_object_is_refused(void **state) {
    (void)state;
    expect_forged_ref_refused(
        "(module " TWO_FUNCS "(type $box (struct (field i32) (field (ref null $s))))"
        "  (func (export \"f\") (param i32) (result i32) (local (ref null $box))"
        "  (local.set 1 (struct.new $box (i32.const 1) (ref.func $small))) (drop (i32.const 1))"
        "  (call_ref $s (local.get 0) (struct.get $box 1 (local.get 1)))))",
        5, "an object has a field of another type");
    expect_forged_ref_refused(
        "(module " TWO_FUNCS "(type $list (array (mut (ref null $s))))"
        "  (func (export \"f\") (param i32) (result i32) (local (ref null $list))"
        "  (local.set 1 (array.new $list (ref.func $small) (i32.const 3))) (drop (i32.const 1))"
        "  (call_ref $s (local.get 0) (array.get $list (local.get 1) (i32.const 0)))))",
        6, "an object has a field of another type");
}

static void a_function_of_another_type_in_a_segment_is_refused(void **state) {
    (void)state;
    expect_forged_ref_refused("(module " TWO_FUNCS
                              "(table $t 3 (ref null $s)) (elem $e (ref null $s) (ref.func $small))"
                              "  (func (export \"f\") (param i32) (result i32)"
                              "  (table.init $t $e (i32.const 0) (i32.const 0) (i32.const 1))"
                              "  (table.set $t (i32.const 0) (ref.null $s)) (drop (i32.const 1))"
                              "  (local.get 0)))",
                              9, "a segment has an element of another type");
}

static void a_function_of_another_type_in_an_exception_is_refused(void **state) {
    (void)state;
    expect_forged_ref_refused(
        "(module " TWO_FUNCS "(tag $t (param (ref null $s)))"
        "  (func (export \"f\") (param i32) (result i32) (local exnref)"
        "  (block $h (result exnref)"
        "    (try_table (catch_all_ref $h) (throw $t (ref.func $small))) (unreachable))"
        "  (local.set 1) (drop (i32.const 1)) (drop (i32.const 1)) (local.get 0)))",
        4, "an exception has a value of another type");
}

static void an_argument_of_another_type_is_refused(void **state) {
    (void)state;
    struct cell c;
    struct err err;
    struct wasm_extern f;
    struct buf bytes DEFER(buf_done) = BUF(1 << 22);
    cell_open(&c, "(module " TWO_FUNCS "(func (export \"f\") (param (ref null $s)) nop))");
    struct wasm_value v = {.ref = func_ref(1), .type = WASM_FUNCREF};
    assert_true(wasm_export(c.instance, "f", 1, &f));
    assert_int_equal(wasm_call(c.store, f, &v, 1, &err), 0);
    capture(&c, &bytes);
    assert_int_equal(resume(&c, &bytes, &err), 0);
    forge(&bytes, func_ref(1), func_ref(2));
    expect_refused(&c, &bytes, "an argument has another type");
    cell_close(&c);
}

/* ---- Objects, numbers, handles ---- */

#define OBJ UINT64_C(0xc000000000000000)
#define I31 UINT64_C(0xa000000000000000)

static void an_object_of_another_type_is_refused(void **state) {
    (void)state;
    struct cell c;
    struct err err;
    struct buf bytes DEFER(buf_done) = BUF(1 << 22);
    stop_in(&c,
            "(module (type $p (struct (field i32))) (type $q (struct (field i64) (field i64)))"
            "  (func (export \"f\") (param i32) (local (ref null $p) (ref null $q))"
            "  (local.set 1 (struct.new $p (i32.const 1)))"
            "  (local.set 2 (struct.new $q (i64.const 1) (i64.const 2)))"
            "  (drop (i32.const 1)) (drop (i32.const 1))))",
            "f", 8);
    capture(&c, &bytes);
    assert_int_equal(resume(&c, &bytes, &err), 0);
    forge(&bytes, OBJ + 1, OBJ + 0);
    expect_refused(&c, &bytes, "a frame has a value of another type");
    forge(&bytes, OBJ + 0, OBJ + 9); /* no object at all */
    expect_refused(&c, &bytes, "a frame has a value of another type");
    cell_close(&c);
}

static void a_number_wider_than_its_type_is_refused(void **state) {
    (void)state;
    struct cell c;
    struct err err;
    struct buf bytes DEFER(buf_done) = BUF(1 << 22);
    stop_in(&c,
            "(module (func (export \"f\") (param i32) (local i32)"
            "  (local.set 1 (i32.const 0x12345678)) (drop (i32.const 1)) (drop (i32.const 2))))",
            "f", 4);
    capture(&c, &bytes);
    assert_int_equal(resume(&c, &bytes, &err), 0);
    forge(&bytes, 0x12345678, UINT64_C(0x712345678));
    expect_refused(&c, &bytes, "a frame has a value of another type");
    cell_close(&c);
}

static void a_handle_the_host_did_not_take_is_refused(void **state) {
    (void)state;
    struct cell c;
    struct err err;
    struct wasm_extern f;
    struct buf bytes DEFER(buf_done) = BUF(1 << 22);
    cell_open(&c, "(module (global $g (mut externref) (ref.null extern))"
                  "  (func (export \"f\") (param externref) (global.set $g (local.get 0))"
                  "  (drop (i32.const 1))))");
    struct wasm_value v = wasm_host_ref(123456);
    assert_true(wasm_export(c.instance, "f", 1, &f));
    assert_int_equal(wasm_call(c.store, f, &v, 1, &err), 0);
    assert_int_equal(wasm_run(c.store, UINT64_MAX)->outcome, WASM_DONE);
    capture(&c, &bytes);
    assert_int_equal(resume(&c, &bytes, &err), 0);
    forge(&bytes, 123457, 123999); /* the reference in the global; the list has the handle */
    expect_refused(&c, &bytes, "a global has a value of another type");
    cell_close(&c);
}

/* ---- Calls ---- */

/* The frame of $num stands for that of $ref: a number would come back as a reference. */
static void a_callee_that_returns_another_type_is_refused(void **state) {
    (void)state;
    struct cell c;
    struct err err;
    struct buf bytes DEFER(buf_done) = BUF(1 << 22);
    stop_in(&c,
            "(module " TWO_FUNCS
            "  (func $ref (result (ref null $s)) (drop (i32.const 1)) (ref.func $small))"
            "  (func $num (result i64) (drop (i32.const 1)) (i64.const 5))"
            "  (func (export \"f\") (param i32) (result i32)"
            "    (call_ref $s (local.get 0) (call $ref))))",
            "f", 3);
    capture(&c, &bytes);
    assert_int_equal(resume(&c, &bytes, &err), 0);
    uint8_t *p = (uint8_t *)bytes.data + bytes.len - HASH;
    /* The innermost frame is instance 1, function 3, an offset; then the number of slots. */
    bool changed = false;
    for (uint8_t *at = p - 12; at < p && !changed; at++)
        if (at[0] == 1 && at[1] == 3) {
            at[1] = 4;
            changed = true;
        }
    assert_true(changed);
    reseal(&bytes);
    expect_refused(&c, &bytes, "a frame has a value of another type");
    cell_close(&c);
}

static void a_pending_host_call_of_another_type_is_refused(void **state) {
    (void)state;
    static const char text[] =
        "(module (import \"env\" \"ask\" (func $ask (param i32) (result i32)))"
        "  (import \"env\" \"wide\" (func $wide (param i32) (result i64)))"
        "  (func (export \"f\") (param i32) (result i32) (call $ask (i32.const 77)))"
        "  (func (export \"t\") (param i32) (result i32) (return_call $ask (i32.const 77))))";
    for (int tail = 0; tail < 2; tail++) {
        struct cell c = {.engine = wasm_engine_new(NULL)};
        struct err err;
        struct buf bytes DEFER(buf_done) = BUF(1 << 22);
        const uint32_t i32[] = {WASM_I32}, i64[] = {WASM_I64};
        const struct wasm_func_type ask = {i32, i32, 1, 1}, wide = {i32, i64, 1, 1};
        c.module = load(c.engine, text);
        c.store = wasm_store_new(c.engine);
        assert_int_equal(wasm_host_func(c.store, "env", "ask", &ask, 5, &err), 0);
        assert_int_equal(wasm_host_func(c.store, "env", "wide", &wide, 5, &err), 0);
        wasm_fuel_add(c.store, 1000);
        assert_int_equal(wasm_instance_new(c.store, c.module, NULL, 0, &c.instance, &err), 0);
        assert_int_equal(wasm_run(c.store, UINT64_MAX)->outcome, WASM_DONE);
        start(&c, tail ? "t" : "f", 1);
        assert_int_equal(wasm_run(c.store, UINT64_MAX)->outcome, WASM_HOST);
        capture(&c, &bytes);
        assert_int_equal(resume(&c, &bytes, &err), 0);
        /* call 3 (host call pending), host function 0, one frame of instance 1 */
        uint8_t *end = (uint8_t *)bytes.data + bytes.len - HASH, *at = end - 12;
        while (at < end && memcmp(at, "\3\0\1\1", 4) != 0)
            at++;
        assert_ptr_not_equal(at, end);
        at[1] = 1;
        reseal(&bytes);
        expect_refused(&c, &bytes, "another type");
        cell_close(&c);
    }
}

/* ---- Shape ---- */

static void a_wrong_stack_height_is_refused(void **state) {
    (void)state;
    for (int more = -1; more <= 1; more += 2) {
        struct cell c;
        struct err err;
        struct buf bytes DEFER(buf_done) = BUF(1 << 22), changed DEFER(buf_done) = BUF(1 << 22);
        stop_in(&c,
                "(module (func (export \"f\") (param i32) (result i32)"
                "  (i32.add (local.get 0) (i32.const 5))))",
                "f", 2);
        capture(&c, &bytes);
        assert_int_equal(resume(&c, &bytes, &err), 0);
        /* It ends with 3 slots: the local, and two operands. */
        size_t body = bytes.len - HASH;
        assert_memory_equal(bytes.data + body - 4, "\3\7\7\5", 4);
        assert_true(buf_add(&changed, bytes.data, body - 4));
        assert_true(more > 0 ? buf_add(&changed, "\4\7\7\5\5", 5) : buf_add(&changed, "\2\7\7", 3));
        assert_true(buf_add(&changed, bytes.data + body, HASH));
        reseal(&changed);
        expect_refused(&c, &changed, "stack height");
        cell_close(&c);
    }
}

static void trailing_bytes_are_refused(void **state) {
    (void)state;
    struct cell c;
    struct err err;
    struct buf bytes DEFER(buf_done) = BUF(1 << 22);
    cell_open(&c, "(module (func (export \"f\") nop))");
    capture(&c, &bytes);
    assert_int_equal(resume(&c, &bytes, &err), 0);
    assert_true(buf_add(&bytes, "", 1));
    reseal(&bytes);
    expect_refused(&c, &bytes, "length");
    cell_close(&c);
}

/* Frames in any number and order of places are checked in one walk of each function. */
static void deep_recursion_is_saved_and_read(void **state) {
    (void)state;
    struct cell c;
    cell_open(&c, "(module (func $a (export \"f\") (param i32) (result i32)"
                  "  (if (i32.eqz (local.get 0)) (then (return (i32.const 1))))"
                  "  (if (result i32) (i32.and (local.get 0) (i32.const 1))"
                  "    (then (i32.add (i32.const 1)"
                  "      (call $b (i32.sub (local.get 0) (i32.const 1)) (ref.i31 (local.get 0)))))"
                  "    (else (call $b (i32.sub (local.get 0) (i32.const 1)) (ref.null any)))))"
                  "  (func $b (param i32 anyref) (result i32)"
                  "    (i32.add (call $a (local.get 0)) (i32.const 1))))");
    start(&c, "f", 3000);
    const struct wasm_event *ev;
    while ((ev = wasm_run(c.store, 10007))->outcome == WASM_SLICE)
        move(&c);
    assert_int_equal(ev->outcome, WASM_DONE);
    assert_int_equal(ev->values[0].i32, 1 + 1500 + 3000);
    cell_close(&c);
}

static bool take_piece(void *arg, const void *bytes, size_t len) {
    return buf_add(arg, bytes, len);
}

static bool refuse_piece(void *arg, const void *bytes, size_t len) {
    (void)bytes;
    *(size_t *)arg += len;
    return *(size_t *)arg <= 1 << 20;
}

/* The memory is larger than a piece. */
static void a_capture_in_pieces_has_the_same_bytes(void **state) {
    (void)state;
    struct cell c;
    struct buf whole DEFER(buf_done) = BUF(16 << 20), pieces DEFER(buf_done) = BUF(16 << 20);
    struct err err;
    size_t taken = 0;
    cell_open(&c,
              "(module (memory 80) (func (export \"f\") (param i32) (result i32) (local i32)"
              "  (loop $more (i32.store (local.get 1) (local.get 1))"
              "    (br_if $more (i32.lt_u (local.tee 1 (i32.add (local.get 1) (i32.const 4000)))"
              "      (i32.const 5000000)))) (loop $spin (br $spin)) (local.get 0)))");
    start(&c, "f", 7);
    while (wasm_fuel_used(c.store) < 100000)
        assert_int_equal(wasm_run(c.store, 1000)->outcome, WASM_SLICE);
    capture(&c, &whole);
    assert_true(whole.len > 2 << 20);
    assert_int_equal(wasm_capture_to(c.store, take_piece, &pieces, &err), 0);
    assert_int_equal(pieces.len, whole.len);
    assert_memory_equal(pieces.data, whole.data, whole.len);
    assert_int_equal(wasm_capture_to(c.store, refuse_piece, &taken, &err), -1);
    cell_close(&c);
}

UNIT_MAIN(cmocka_unit_test(a_capture_in_pieces_has_the_same_bytes),
          cmocka_unit_test(a_function_of_another_type_on_the_stack_is_refused),
          cmocka_unit_test(a_function_of_another_type_in_a_local_is_refused),
          cmocka_unit_test(a_function_of_another_type_in_a_callers_frame_is_refused),
          cmocka_unit_test(a_function_of_another_type_in_a_global_is_refused),
          cmocka_unit_test(a_function_of_another_type_in_a_table_is_refused),
          cmocka_unit_test(a_function_of_another_type_in_an_object_is_refused),
          cmocka_unit_test(a_function_of_another_type_in_a_segment_is_refused),
          cmocka_unit_test(a_function_of_another_type_in_an_exception_is_refused),
          cmocka_unit_test(an_argument_of_another_type_is_refused),
          cmocka_unit_test(an_object_of_another_type_is_refused),
          cmocka_unit_test(a_number_wider_than_its_type_is_refused),
          cmocka_unit_test(a_handle_the_host_did_not_take_is_refused),
          cmocka_unit_test(a_callee_that_returns_another_type_is_refused),
          cmocka_unit_test(a_pending_host_call_of_another_type_is_refused),
          cmocka_unit_test(a_wrong_stack_height_is_refused),
          cmocka_unit_test(trailing_bytes_are_refused),
          cmocka_unit_test(deep_recursion_is_saved_and_read))
