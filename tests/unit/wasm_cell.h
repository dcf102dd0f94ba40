/* One module in one store, from its text: what the tests of the engine start from. */
#pragma once

#include <string.h>

#include "base/defer.h"
#include "tests/unit/unit.h"
#include "wasm/text/wat.h"
#include "wasm/wasm.h"

struct cell {
    struct wasm_engine *engine;
    struct wasm_module *module;
    struct wasm_store *store;
    struct wasm_instance *instance;
};

static inline struct wasm_module *load(struct wasm_engine *e, const char *text) {
    struct wat_module wat = {0};
    struct wat_diags diags = {0};
    struct wasm_diag diag;
    struct wasm_module *m = NULL;
    assert_int_equal(wat_encode(text, strlen(text), 30, &wat, &diags), 0);
    assert_int_equal(wasm_module_load(e, wat.binary.data, wat.binary.len, WASM_3_0, &m, &diag), 0);
    wat_module_done(&wat);
    return m;
}

static inline void cell_open_with(struct cell *c, const char *text, const struct wasm_config *cfg) {
    struct err err;
    c->engine = wasm_engine_new(cfg);
    c->module = load(c->engine, text);
    c->store = wasm_store_new(c->engine);
    const struct wasm_func_type ask = {.params = (uint32_t[]){WASM_I32},
                                       .results = (uint32_t[]){WASM_I32},
                                       .n_params = 1,
                                       .n_results = 1};
    assert_int_equal(wasm_host_func(c->store, "env", "ask", &ask, 5, &err), 0);
    wasm_fuel_add(c->store, 1000000);
    assert_int_equal(wasm_instance_new(c->store, c->module, NULL, 0, &c->instance, &err), 0);
    assert_int_equal(wasm_run(c->store, UINT64_MAX)->outcome, WASM_DONE);
}

static inline void cell_open(struct cell *c, const char *text) {
    cell_open_with(c, text, NULL);
}

static inline void cell_close(struct cell *c) {
    wasm_store_free(c->store);
    wasm_module_unref(c->module);
    wasm_engine_free(c->engine);
}

static inline void start(struct cell *c, const char *name, int32_t arg) {
    struct wasm_extern f;
    struct err err;
    struct wasm_value v = wasm_i32(arg);
    struct wasm_extern_type t;
    assert_true(wasm_export(c->instance, name, strlen(name), &f));
    wasm_extern_type(c->store, f, &t);
    assert_int_equal(wasm_call(c->store, f, &v, t.func.n_params, &err), 0);
}

static inline struct wasm_module *find(void *ctx, const uint8_t hash[32]) {
    struct wasm_module *m = ctx;
    uint8_t own[32];
    wasm_module_hash(m, own);
    return memcmp(own, hash, 32) == 0 ? m : NULL;
}

/* Through bytes into a new store. */
static inline void move(struct cell *c) {
    struct buf state DEFER(buf_done) = BUF(1 << 24);
    struct wasm_modules modules = {find, c->module};
    struct wasm_store *next;
    struct err err;
    assert_int_equal(wasm_capture(c->store, &state, &err), 0);
    assert_int_equal(wasm_resume(c->engine, state.data, state.len, &modules, &next, &err), 0);
    wasm_store_free(c->store);
    c->store = next;
    c->instance = wasm_instance_at(next, 0);
}
