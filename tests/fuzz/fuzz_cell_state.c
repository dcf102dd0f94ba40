/*
 * Any bytes as a saved state of one small module. Header and checksum are put right first, so that
 * what lies behind them is reached. Property: refused, or it runs with little fuel; and then capture,
 * resume, capture gives the same bytes twice.
 */
#include <stdint.h>
#include <string.h>

#include "base/defer.h"
#include "wasm/engine.h"
#include "wasm/wat.h"

enum { STATE_MAX = 4 << 20, INPUT_MAX = 1 << 16, HEAD = 16, HASH = 32 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char text[] =
    "(module (import \"env\" \"ask\" (func $ask (param i32) (result i32)))"
    "  (memory 1 3) (table 4 8 funcref) (global $g (mut i64) (i64.const 0)) (global $x (mut externref) (ref.null extern))"
    "  (tag $t (param i32)) (data (i32.const 8) \"seed\") (elem (i32.const 0) $fib $asks)"
    "  (func $fib (export \"fib\") (param i32) (result i32)"
    "    (if (result i32) (i32.lt_u (local.get 0) (i32.const 2)) (then (local.get 0))"
    "      (else (i32.add (call $fib (i32.sub (local.get 0) (i32.const 1)))"
    "                     (call $fib (i32.sub (local.get 0) (i32.const 2)))))))"
    "  (func $asks (export \"asks\") (param i32) (result i32) (local v128 exnref)"
    "    (block $b (result i32 exnref)"
    "      (try_table (catch_ref $t $b)"
    "        (drop (call_indirect (param i32) (result i32) (call $ask (local.get 0)) (i32.const 0)))"
    "        (global.set $g (i64.add (global.get $g) (i64.const 1)))"
    "        (throw $t (call $ask (i32.const 7))))"
    "      (unreachable))"
    "    (local.set 2)"
    "    (i32.add (memory.grow (i32.const 1)))))";

struct world {
    struct wasm_engine *engine;
    struct wasm_module *module;
};

static void world_done(struct world *w) {
    wasm_module_unref(w->module);
    wasm_engine_free(w->engine);
}

static struct wasm_module *find(void *ctx, const uint8_t hash[32]) {
    (void)hash; /* a fuzzer does not guess hashes */
    return ctx;
}

static void seal(uint8_t *bytes, size_t size) {
    static const uint8_t head[HEAD] = {'C', 'R', 'L', 'S', 'T', 'A', 'T', 'E', WASM_STATE_VERSION, 0, 0, 0, WASM_FUEL_VERSION};
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
        if (ev->outcome == WASM_HOST && wasm_answer(s, &answer, 1, NULL) < 0 && wasm_answer(s, NULL, 0, NULL) < 0)
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
    const struct wasm_modules modules = {find, w->module};
    struct wasm_store *s DEFER(wasm_store_freep) = NULL, *t DEFER(wasm_store_freep) = NULL;
    if (wasm_resume(w->engine, bytes, size, &modules, &s, NULL) < 0)
        return;
    struct buf one DEFER(buf_done) = BUF(STATE_MAX), two DEFER(buf_done) = BUF(STATE_MAX);
    if (wasm_capture(s, &one, NULL) == 0) {
        if (wasm_resume(w->engine, one.data, one.len, &modules, &t, NULL) < 0)
            abort();
        if (wasm_capture(t, &two, NULL) < 0 || one.len != two.len || memcmp(one.data, two.data, one.len) != 0)
            abort();
    }
    run(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < HEAD + HASH || size > INPUT_MAX)
        return 0;
    const struct wasm_config cfg = {.memory_pages = 4, .table_elems = 100, .stack_slots = 4096, .frames = 200, .instances = 4};
    struct world w DEFER(world_done) = {.engine = wasm_engine_new(&cfg)};
    struct wat_module wat DEFER(wat_module_done) = {0};
    struct wat_diags diags = {0};
    struct wasm_diag diag;
    if (wat_encode(text, sizeof text - 1, 30, &wat, &diags) < 0 ||
        wasm_module_load(w.engine, wat.binary.data, wat.binary.len, WASM_3_0, &w.module, &diag) < 0)
        abort();
    uint8_t *copy DEFER_FREE = malloc(size);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    seal(copy, size);
    check(&w, copy, size);
    return 0;
}
