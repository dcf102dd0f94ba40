/*
 * Any bytes as a saved state of three small modules: plain, with objects, with typed functions.
 * Header and checksum are put right first, so that what lies behind them is reached. Property:
 * refused, or it runs with little fuel; and then capture, resume, capture gives the same bytes
 * twice. What it runs into is again a state that can be read: no value has got a type that its
 * place does not have.
 */
#include <stdint.h>
#include <string.h>

#include "base/defer.h"
#include "wasm/engine.h"
#include "wasm/text/wat.h"

enum { STATE_MAX = 4 << 20, INPUT_MAX = 1 << 16, HEAD = 16, HASH = 32 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char plain[] =
    "(module (import \"env\" \"ask\" (func $ask (param i32) (result i32)))"
    "  (memory 1 3) (table 4 8 funcref) (global $g (mut i64) (i64.const 0)) (global $x (mut "
    "externref) (ref.null extern))"
    "  (tag $t (param i32)) (data (i32.const 8) \"seed\") (elem (i32.const 0) $fib $asks)"
    "  (func $fib (export \"fib\") (param i32) (result i32)"
    "    (if (result i32) (i32.lt_u (local.get 0) (i32.const 2)) (then (local.get 0))"
    "      (else (i32.add (call $fib (i32.sub (local.get 0) (i32.const 1)))"
    "                     (call $fib (i32.sub (local.get 0) (i32.const 2)))))))"
    "  (func $asks (export \"asks\") (param i32) (result i32) (local v128 exnref)"
    "    (block $b (result i32 exnref)"
    "      (try_table (catch_ref $t $b)"
    "        (drop (call_indirect (param i32) (result i32) (call $ask (local.get 0)) (i32.const "
    "0)))"
    "        (global.set $g (i64.add (global.get $g) (i64.const 1)))"
    "        (throw $t (call $ask (i32.const 7))))"
    "      (unreachable))"
    "    (local.set 2)"
    "    (i32.add (memory.grow (i32.const 1)))))";

/* Lists, arrays of lists, packed fields; references in globals, tables, segments and frames. */
static const char objects[] =
    "(module (import \"env\" \"ask\" (func $ask (param i32) (result i32)))"
    "  (rec (type $list (sub (struct (field (mut i32)) (field (mut (ref null $list))))))"
    "       (type $wide (sub $list (struct (field (mut i32)) (field (mut (ref null $list)))"
    "         (field (mut i8)) (field v128)))))"
    "  (type $lists (array (mut (ref null $list)))) (type $text (array (mut i16)))"
    "  (global $kept (mut anyref) (array.new_fixed $text 2 (i32.const 1) (i32.const 2)))"
    "  (table $t 2 4 anyref) (data $d \"some bytes\")"
    "  (elem $e (ref null $list) (struct.new $list (i32.const 5) (ref.null none)))"
    "  (func $build (param i32) (result (ref null $list)) (local (ref null $list))"
    "    (loop $l (local.set 1 (struct.new $list (local.get 0) (local.get 1)))"
    "      (br_if $l (local.tee 0 (i32.sub (local.get 0) (i32.const 1)))))"
    "    (local.get 1))"
    "  (func (export \"run\") (param i32) (result i32)"
    "    (local (ref null $list) (ref null $lists) anyref)"
    "    (local.set 1 (call $build (i32.const 4)))"
    "    (local.set 2 (array.new_elem $lists $e (i32.const 0) (i32.const 1)))"
    "    (array.set $lists (local.get 2) (i32.const 0) (struct.new $wide (i32.const 9)"
    "      (local.get 1) (i32.const 255) (v128.const i64x2 1 2)))"
    "    (table.set $t (i32.const 1) (local.get 2))"
    "    (global.set $kept (array.new_data $text $d (i32.const 2) (i32.const 4)))"
    "    (struct.set $list 0 (local.get 1) (call $ask (i32.const 7)))"
    "    (local.set 3 (ref.i31 (local.get 0)))"
    "    (local.set 3 (any.convert_extern (extern.convert_any (local.get 3))))"
    "    (i32.add (call $ask (struct.get $list 0 (array.get $lists (ref.cast (ref $lists)"
    "        (table.get $t (i32.const 1))) (i32.const 0))))"
    "      (i32.add (array.len (ref.cast (ref array) (global.get $kept)))"
    "        (i32.add (i31.get_s (ref.cast (ref i31) (local.get 3)))"
    "          (struct.get_u $wide 2 (ref.cast (ref $wide)"
    "            (array.get $lists (local.get 2) (i32.const 0)))))))))";

/* Functions of two types, called through references from every place that can hold one. */
static const char funcs[] =
    "(module (type $s (func (param i32) (result i32))) (type $b (func (param i64) (result i64)))"
    "  (type $o (struct (field (mut (ref null $s))) (field (mut (ref null $b)))))"
    "  (import \"env\" \"ask\" (func $ask (param i32) (result i32)))"
    "  (func $one (type $s) (i32.add (local.get 0) (i32.const 1)))"
    "  (func $two (type $b) (i64.add (local.get 0) (i64.const 2)))"
    "  (global $g (mut (ref null $s)) (ref.null $s)) (table $t 3 6 (ref null $b))"
    "  (elem $e (ref null $b) (ref.func $two)) (elem declare func $one $two)"
    "  (func (export \"run\") (param i32) (result i32) (local (ref null $o) (ref $s))"
    "    (local.set 2 (ref.func $one)) (global.set $g (local.get 2))"
    "    (table.init $t $e (i32.const 1) (i32.const 0) (i32.const 1))"
    "    (local.set 1 (struct.new $o (global.get $g) (table.get $t (i32.const 1))))"
    "    (drop (call $ask (call_ref $s (local.get 0) (local.get 2))))"
    "    (drop (call_ref $b (i64.const 3) (struct.get $o 1 (local.get 1))))"
    "    (return_call_ref $s (call $ask (i32.const 4)) (struct.get $o 0 (local.get 1)))))";

struct world {
    struct wasm_engine *engine;
    struct wasm_module *plain, *objects, *funcs;
};

static void world_done(struct world *w) {
    wasm_module_unref(w->plain);
    wasm_module_unref(w->objects);
    wasm_module_unref(w->funcs);
    wasm_engine_free(w->engine);
}

/* A fuzzer does not guess hashes: one byte chooses. */
static struct wasm_module *find(void *ctx, const uint8_t hash[32]) {
    const struct world *w = ctx;
    uint8_t with_objects[HASH], with_funcs[HASH];
    wasm_module_hash(w->objects, with_objects);
    wasm_module_hash(w->funcs, with_funcs);
    return hash[0] == with_objects[0] ? w->objects : hash[0] == with_funcs[0] ? w->funcs : w->plain;
}

/* The binary is kept from one input to the next. */
static struct wasm_module *load(struct wasm_engine *e, const char *text, struct wat_module *kept) {
    struct wat_diags diags = {0};
    struct wasm_diag diag;
    struct wasm_module *m;
    if ((kept->binary.len == 0 && wat_encode(text, strlen(text), 30, kept, &diags) < 0) ||
        wasm_module_load(e, kept->binary.data, kept->binary.len, WASM_3_0, &m, &diag) < 0)
        abort();
    return m;
}

static void seal(uint8_t *bytes, size_t size) {
    static const uint8_t head[HEAD] = {
        'C', 'R', 'L', 'S', 'T', 'A', 'T', 'E', WASM_STATE_VERSION, 0, 0, 0, WASM_FUEL_VERSION};
    struct sha256 h;
    memcpy(bytes, head, HEAD);
    sha256_init(&h);
    sha256_add(&h, bytes, size - HASH);
    sha256_end(&h, bytes + size - HASH);
}

static void run(struct wasm_store *s) {
    struct wasm_value answer = wasm_i32(3);
    for (int i = 0; i < 20; i++) {
        const struct wasm_event *ev = wasm_run(s, 500);
        if (ev->outcome == WASM_HOST && wasm_answer(s, &answer, 1, NULL) < 0 &&
            wasm_answer(s, NULL, 0, NULL) < 0)
            wasm_answer_trap(s, "host", NULL);
        else if (ev->outcome != WASM_SLICE && ev->outcome != WASM_HOST)
            return;
        struct wasm_frame f;
        for (uint32_t k = 0; k < 4 && wasm_frame_at(s, k, &f); k++)
            if (f.func >= wasm_module_funcs(wasm_instance_module(f.instance)))
                abort();
    }
}

static void check(struct world *w, const uint8_t *bytes, size_t size) {
    const struct wasm_modules modules = {find, w};
    struct wasm_store *s DEFER(wasm_store_freep) = NULL, *t DEFER(wasm_store_freep) = NULL;
    if (wasm_resume(w->engine, bytes, size, &modules, &s, NULL) < 0)
        return;
    struct buf one DEFER(buf_done) = BUF(STATE_MAX), two DEFER(buf_done) = BUF(STATE_MAX);
    if (wasm_capture(s, &one, NULL) == 0) {
        if (wasm_resume(w->engine, one.data, one.len, &modules, &t, NULL) < 0)
            abort();
        if (wasm_capture(t, &two, NULL) < 0 || one.len != two.len ||
            memcmp(one.data, two.data, one.len) != 0)
            abort();
    }
    run(s);
    struct wasm_store *u DEFER(wasm_store_freep) = NULL;
    one.len = 0;
    if (wasm_capture(s, &one, NULL) == 0 &&
        wasm_resume(w->engine, one.data, one.len, &modules, &u, NULL) < 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < HEAD + HASH || size > INPUT_MAX)
        return 0;
    const struct wasm_config cfg = {
        .memory_pages = 4, .table_elems = 100, .stack_slots = 4096, .frames = 200, .instances = 4};
    struct world w DEFER(world_done) = {.engine = wasm_engine_new(&cfg)};
    static struct wat_module kept[3];
    w.plain = load(w.engine, plain, &kept[0]);
    w.objects = load(w.engine, objects, &kept[1]);
    w.funcs = load(w.engine, funcs, &kept[2]);
    uint8_t *copy DEFER_FREE = malloc(size);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    seal(copy, size);
    check(&w, copy, size);
    return 0;
}
