/*
 * Any bytes as a module, at every level. Property: a module that loads does the same in one go and
 * cut into slices with capture, resume and fork between them: events, results, fuel, store hash.
 */
#include <stdint.h>
#include <string.h>

#include "base/defer.h"
#include "wasm/wasm.h"

enum { FUEL = 20000, STATE_MAX = 8 << 20, MODULE_MAX = 1 << 16, CALLS_MAX = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct run {
    struct wasm_engine *engine;
    struct wasm_module *module;
    struct wasm_store *store;
    uint64_t slice; /* 0: one go */
    uint64_t hash;
};

static void note(struct run *r, const void *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        r->hash = (r->hash ^ ((const uint8_t *)bytes)[i]) * UINT64_C(1099511628211);
}

static void note_event(struct run *r, const struct wasm_event *ev) {
    note(r, &ev->outcome, sizeof ev->outcome);
    if (ev->outcome == WASM_TRAPPED)
        note(r, ev->text, strlen(ev->text));
    for (uint32_t i = 0; i < ev->n_values; i++)
        note(r, ev->values[i].v128,
             ev->values[i].type == WASM_V128  ? 16
             : ev->values[i].type == WASM_I32 ? 4
                                              : 8);
}

static struct wasm_module *find_module(void *ctx, const uint8_t hash[32]) {
    (void)hash;
    return ((struct run *)ctx)->module;
}

/* Alternately through bytes and through fork. */
static void move_store(struct run *r) {
    struct err err;
    struct wasm_store *moved = NULL;
    if (r->slice & 1) {
        if (wasm_fork(r->store, &moved, &err) < 0)
            abort();
    } else {
        struct buf state DEFER(buf_done) = BUF(STATE_MAX);
        const struct wasm_modules modules = {.find = find_module, .ctx = r};
        /* Only a state too large for the cap may fail to be written. */
        if (wasm_capture(r->store, &state, &err) < 0)
            return;
        if (wasm_resume(r->engine, state.data, state.len, &modules, &moved, &err) < 0)
            abort();
    }
    wasm_store_free(r->store);
    r->store = moved;
}

static const struct wasm_event *run_on(struct run *r) {
    if (!r->slice)
        return wasm_run(r->store, UINT64_MAX);
    const struct wasm_event *ev;
    for (unsigned stops = 0; (ev = wasm_run(r->store, r->slice))->outcome == WASM_SLICE; stops++) {
        if (stops < 4)
            move_store(r);
        r->slice = r->slice * 3 % 1009 + 1;
    }
    return ev;
}

/* To the end of the call; false when fuel is out. Every import call traps, after a move. */
static bool drive(struct run *r) {
    const struct wasm_event *ev;
    if ((ev = run_on(r))->outcome == WASM_HOST) {
        note_event(r, ev);
        if (r->slice)
            move_store(r);
        if (wasm_answer_trap(r->store, "host", NULL) < 0)
            abort();
        return true;
    }
    note_event(r, ev);
    return ev->outcome == WASM_DONE || ev->outcome == WASM_TRAPPED || ev->outcome == WASM_THROWN;
}

static bool call_export(struct run *r, const struct wasm_export *export) {
    struct wasm_value args[8];
    const struct wasm_func_type *type = &export->type.func;
    struct wasm_extern f;
    if (type->n_params > 8 ||
        !wasm_export(wasm_instance_at(r->store, 0), export->name, export->name_size, &f))
        return true;
    for (uint32_t i = 0; i < type->n_params; i++)
        args[i] = (struct wasm_value){.type = type->params[i]};
    if (wasm_call(r->store, f, args, type->n_params, NULL) < 0)
        return true; /* a null for a type that has none */
    return drive(r);
}

static void run_exports(struct run *r) {
    uint32_t n = wasm_module_exports(r->module);
    for (uint32_t i = 0; i < n && i < CALLS_MAX; i++) {
        struct wasm_export export;
        wasm_module_export(r->module, i, &export);
        if (export.type.kind == WASM_FUNC && !call_export(r, &export))
            return; /* out of fuel */
    }
}

static void define_imports(struct run *r) {
    for (uint32_t i = 0; i < wasm_module_imports(r->module); i++) {
        struct wasm_import import;
        char module[32], name[32];
        wasm_module_import(r->module, i, &import);
        snprintf(module, sizeof module, "%.*s", (int)import.module_size, import.module);
        snprintf(name, sizeof name, "%.*s", (int)import.name_size, import.name);
        if (import.type.kind == WASM_FUNC)
            (void)wasm_host_func(r->store, module, name, &import.type.func, 10, NULL);
    }
}

static uint64_t run_module(struct wasm_engine *e, struct wasm_module *m, uint64_t slice) {
    struct run r = {.engine = e, .module = m, .slice = slice, .hash = 1};
    struct wasm_instance *instance;
    uint8_t hash[32];
    r.store = wasm_store_new(e);
    wasm_fuel_add(r.store, FUEL);
    define_imports(&r);
    if (wasm_instance_new(r.store, m, NULL, 0, &instance, NULL) == 0 && drive(&r))
        run_exports(&r);
    uint64_t used = wasm_fuel_used(r.store);
    note(&r, &used, sizeof used);
    if (wasm_store_hash(r.store, hash, NULL) == 0)
        note(&r, hash, sizeof hash);
    wasm_store_free(r.store);
    return r.hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const enum wasm_level levels[] = {WASM_1_0, WASM_2_0, WASM_3_0};
    const struct wasm_config config = {
        .memory_pages = 64, .table_elems = 4096, .stack_slots = 65536, .frames = 512};
    struct wasm_engine *e = wasm_engine_new(&config);
    for (unsigned i = 0; size <= MODULE_MAX && i < 3; i++) {
        struct wasm_module *m;
        struct wasm_diag diag;
        if (wasm_module_load(e, data, size, levels[i], &m, &diag) < 0)
            continue;
        if (i == 2 && run_module(e, m, 0) != run_module(e, m, size % 97 + 1))
            abort();
        wasm_module_unref(m);
    }
    wasm_engine_free(e);
    return 0;
}
