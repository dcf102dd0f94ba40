/*
 * The bytes that one store may use: memories, tables, objects, exceptions, globals, instances and
 * code.
 *
 * Bytes are counted by fixed rules, not by what the allocator took. So a program reaches the limit
 * at the same point on every CPU, whether it runs at once or in slices, before and after a save.
 */
#pragma once

#include "wasm/engine.h"

enum {
    BUDGET_ITEM = 32, /* bytes for a global, an object, an exception, each entry of an instance */
    BUDGET_CODE = 4,  /* bytes for each byte of the module of an instance */
};

static inline bool store_has(const struct wasm_store *s, uint64_t bytes) {
    return bytes <= s->engine->cfg.store_bytes - s->bytes;
}

static inline bool store_take(struct wasm_store *s, uint64_t bytes) {
    if (!store_has(s, bytes)) {
        s->is_over_budget = true;
        return false;
    }
    s->bytes += bytes;
    return true;
}

static inline void store_give(struct wasm_store *s, uint64_t bytes) {
    s->bytes -= bytes;
}

/* Returns the bytes to count for an object or exception with this many slots. */
static inline uint64_t budget_slots(uint64_t slots) {
    return slots * 8 + BUDGET_ITEM;
}

static inline uint64_t budget_instance(const struct wasm_module *m) {
    uint64_t items = 1 + (uint64_t)m->n_imports + m->n_globals + m->n_mems + m->n_tables +
                     m->n_tags + m->n_elems + m->n_datas;
    for (uint32_t i = 0; i < m->n_elems; i++)
        items += m->elems[i].n / 4;
    return items * BUDGET_ITEM + (uint64_t)m->size * BUDGET_CODE;
}
