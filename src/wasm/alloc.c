/*
 * Memory of an engine: the embedder's allocator, arenas, and the engine itself. Exhausted memory is
 * reported to the caller; nothing here aborts.
 */
#include "wasm/engine.h"

#include <sys/mman.h>

struct arena_chunk {
    struct arena_chunk *next;
    size_t size;
};

enum { ARENA_CHUNK = 4096 };

static void *host_realloc(void *ctx, void *p, size_t old_size, size_t new_size) {
    (void)ctx, (void)old_size;
    if (new_size == 0) {
        free(p);
        return NULL;
    }
    return realloc(p, new_size);
}

void *engine_realloc(struct wasm_engine *e, void *p, size_t old_size, size_t new_size) {
    return e->cfg.alloc.realloc(e->cfg.alloc.ctx, p, old_size, new_size);
}

void *engine_alloc(struct wasm_engine *e, size_t size) {
    void *p = engine_realloc(e, NULL, 0, size ? size : 1);
    if (p)
        memset(p, 0, size);
    return p;
}

/* Tells the embedder's allocator the size, so that it need not store sizes itself. */
void engine_release(struct wasm_engine *e, void *p, size_t size) {
    if (p)
        engine_realloc(e, p, size ? size : 1, 0);
}

/* Grows the array by half, so that adding n elements costs O(n). On failure it is unchanged. */
bool engine_grow(struct wasm_engine *e, void *array_slot, uint32_t *cap, uint32_t need,
                 size_t elem_size) {
    if (LIKELY(need <= *cap))
        return true;
    uint32_t next = *cap ? *cap : 8;
    while (next < need)
        next += next / 2 + 8;
    void **slot = array_slot;
    void *p = engine_realloc(e, *slot, *cap * elem_size, next * elem_size);
    if (!p)
        return false;
    *slot = p;
    *cap = next;
    return true;
}

static bool arena_more(struct arena *a, size_t size) {
    size_t total = sizeof(struct arena_chunk) + size;
    if (total < ARENA_CHUNK)
        total = ARENA_CHUNK;
    struct arena_chunk *c = engine_realloc(a->engine, NULL, 0, total);
    if (!c)
        return false;
    *c = (struct arena_chunk){a->chunk, total};
    a->chunk = c;
    a->at = (uint8_t *)(c + 1);
    a->end = (uint8_t *)c + total;
    return true;
}

void *arena_get(struct arena *a, size_t size) {
    size = size ? (size + 7) & ~(size_t)7 : 8;
    if ((size_t)(a->end - a->at) < size && !arena_more(a, size))
        return NULL;
    void *p = a->at;
    a->at += size;
    memset(p, 0, size);
    return p;
}

void engine_arena_done(struct arena *a) {
    while (a->chunk) {
        struct arena_chunk *next = a->chunk->next;
        engine_release(a->engine, a->chunk, a->chunk->size);
        a->chunk = next;
    }
    a->at = a->end = NULL;
}

#define OR(value, fallback) ((value) ? (value) : (fallback))

/* Replaces each 0 in the configuration by its default. */
struct wasm_engine *wasm_engine_new(const struct wasm_config *config) {
    struct wasm_config cfg = config ? *config : (struct wasm_config){0};
    if (!cfg.alloc.realloc)
        cfg.alloc.realloc = host_realloc;
    cfg.memory_pages = OR(cfg.memory_pages, 65536);
    cfg.table_elems = OR(cfg.table_elems, 10000000);
    cfg.stack_slots = OR(cfg.stack_slots, 1u << 20);
    cfg.frames = OR(cfg.frames, 20000);
    cfg.instances = OR(cfg.instances, 10000);
    cfg.module_bytes = OR(cfg.module_bytes, UINT64_C(1) << 30);
    cfg.heap_slots = OR(cfg.heap_slots, 4u << 20);
    cfg.store_bytes = OR(cfg.store_bytes, INT64_MAX);
    cfg.handle_bytes = OR(cfg.handle_bytes, 4096);
    struct wasm_engine *e = cfg.alloc.realloc(cfg.alloc.ctx, NULL, 0, sizeof *e);
    if (!e)
        return NULL;
    *e = (struct wasm_engine){.cfg = cfg};
    e->arena.engine = e;
    plain_ops_init(e->plain);
    return e;
}

void wasm_engine_free(struct wasm_engine *e) {
    if (!e)
        return;
    scratch_free(e);
    if (e->spare.base)
        munmap(e->spare.base, e->spare.size);
    engine_arena_done(&e->arena);
    engine_release(e, e->types, e->cap_types * sizeof *e->types);
    engine_release(e, e->groups, e->cap_groups * sizeof *e->groups);
    if (e->group_table)
        engine_release(e, e->group_table, (e->group_mask + 1) * sizeof *e->group_table);
    engine_release(e, e, sizeof *e);
}
