/* Memories, tables and what the bulk instructions do to them. */
#include "wasm/interp.h"

/* ---- Memories and tables ---- */

static uint64_t memory_cap(const struct wasm_store *s, const struct wasm_limits *l) {
    uint64_t cap = s->engine->cfg.memory_pages;
    if (!l->is64 && cap > 65536)
        cap = 65536;
    return l->has_max && l->max < cap ? l->max : cap;
}

bool memory_new(struct wasm_store *s, const struct wasm_limits *l, struct memory **ret) {
    struct memory *m = engine_alloc(s->engine, sizeof *m);
    if (!m)
        return false;
    m->type = *l;
    m->max = memory_cap(s, l);
    m->size = l->min * PAGE_SIZE;
    if (l->min > m->max || !(m->pages = pages_new(s->engine, m->size, &m->base))) {
        engine_release(s->engine, m, sizeof *m);
        return false;
    }
    *ret = m;
    return true;
}

bool memory_grow(struct wasm_store *s, struct memory *m, uint64_t delta, uint64_t *ret_old) {
    (void)s;
    uint64_t old = m->size / PAGE_SIZE;
    if (delta > m->max - old)
        return false;
    if (delta && !pages_grow(m->pages, m->size + delta * PAGE_SIZE, &m->base))
        return false;
    m->size += delta * PAGE_SIZE;
    *ret_old = old;
    return true;
}

void memory_free(struct wasm_store *s, struct memory *m) {
    pages_free(m->pages);
    engine_release(s->engine, m, sizeof *m);
}

static uint64_t table_cap(const struct wasm_store *s, const struct wasm_limits *l) {
    uint64_t cap = s->engine->cfg.table_elems;
    return l->has_max && l->max < cap ? l->max : cap;
}

static void refs_fill(uint64_t *to, uint64_t n, uint64_t value) {
    for (uint64_t i = 0; i < n; i++)
        to[i] = value;
}

bool table_new(struct wasm_store *s, const struct wasm_limits *l, uint32_t type, uint64_t init,
               struct table **ret) {
    struct table *t = engine_alloc(s->engine, sizeof *t);
    if (!t)
        return false;
    *t = (struct table){.type_limits = *l, .type = type, .max = table_cap(s, l), .size = l->min, .cap = l->min};
    if (l->min > t->max || !(t->elems = engine_alloc(s->engine, l->min * sizeof *t->elems))) {
        engine_release(s->engine, t, sizeof *t);
        return false;
    }
    if (init)
        refs_fill(t->elems, t->size, init);
    *ret = t;
    return true;
}

bool table_grow(struct wasm_store *s, struct table *t, uint64_t delta, uint64_t init,
                uint64_t *ret_old) {
    if (delta > t->max - t->size)
        return false;
    uint64_t size = t->size + delta;
    if (size > t->cap) {
        uint64_t cap = size + size / 2 < t->max ? size + size / 2 : t->max;
        uint64_t *elems = engine_realloc(s->engine, t->elems, t->cap ? t->cap * sizeof *elems : 1,
                                         cap * sizeof *elems);
        if (!elems)
            return false;
        t->elems = elems;
        t->cap = cap;
    }
    refs_fill(t->elems + t->size, delta, init);
    *ret_old = t->size;
    t->size = size;
    return true;
}

/* ---- Bulk instructions ---- */

static bool outside(uint64_t at, uint64_t n, uint64_t size) {
    return at > size || n > size - at;
}

static uint64_t by_bytes(uint64_t n) {
    return n / 64 + (n % 64 != 0);
}

static uint64_t by_elems(uint64_t n) {
    return n / 8 + (n % 8 != 0);
}

static const char *check_memory(struct wasm_instance *i, struct bulk *b) {
    uint64_t n = b->slots[2];
    bool bad;
    if (b->row == OP_MEMORY_FILL) {
        bad = outside(b->slots[0], n, i->mems[b->x]->size);
    } else if (b->row == OP_MEMORY_COPY) {
        bad = outside(b->slots[0], n, i->mems[b->x]->size) ||
              outside(b->slots[1], n, i->mems[b->y]->size);
    } else {
        uint64_t have = i->dropped_datas[b->x] ? 0 : i->mod->datas[b->x].size;
        bad = outside(b->slots[1], n, have) || outside(b->slots[0], n, i->mems[b->y]->size);
    }
    b->cost = by_bytes(n);
    return bad ? trap_memory : NULL;
}

static const char *check_table(struct wasm_instance *i, struct bulk *b) {
    uint64_t n = b->slots[2];
    bool bad;
    if (b->row == OP_TABLE_FILL) {
        bad = outside(b->slots[0], n, i->tables[b->x]->size);
    } else if (b->row == OP_TABLE_COPY) {
        bad = outside(b->slots[0], n, i->tables[b->x]->size) ||
              outside(b->slots[1], n, i->tables[b->y]->size);
    } else {
        uint64_t have = i->dropped_elems[b->x] ? 0 : i->mod->elems[b->x].n;
        bad = outside(b->slots[1], n, have) || outside(b->slots[0], n, i->tables[b->y]->size);
    }
    b->cost = by_elems(n);
    return bad ? trap_table : NULL;
}

const char *bulk_check(struct wasm_instance *i, struct bulk *b) {
    switch (b->row) {
    case OP_MEMORY_GROW: {
        const struct memory *m = i->mems[b->x];
        uint64_t n = b->slots[0];
        if (n <= m->max - m->size / PAGE_SIZE)
            b->cost = n * (PAGE_SIZE / 64);
        return NULL;
    }
    case OP_TABLE_GROW: {
        const struct table *t = i->tables[b->x];
        if (b->slots[1] <= t->max - t->size)
            b->cost = by_elems(b->slots[1]);
        return NULL;
    }
    case OP_MEMORY_INIT:
    case OP_MEMORY_COPY:
    case OP_MEMORY_FILL:
        return check_memory(i, b);
    default:
        return check_table(i, b);
    }
}

static bool grow(struct wasm_store *s, struct wasm_instance *i, struct bulk *b) {
    uint64_t old = UINT64_MAX;
    if (b->row == OP_MEMORY_GROW) {
        struct memory *m = i->mems[b->x];
        bool allowed = b->slots[0] <= m->max - m->size / PAGE_SIZE;
        if (allowed && !memory_grow(s, m, b->slots[0], &old))
            return false;
        b->slots[0] = allowed ? old : m->type.is64 ? UINT64_MAX : UINT32_MAX;
        return true;
    }
    struct table *t = i->tables[b->x];
    bool allowed = b->slots[1] <= t->max - t->size;
    if (allowed && !table_grow(s, t, b->slots[1], b->slots[0], &old))
        return false;
    b->slots[0] = allowed ? old : t->type_limits.is64 ? UINT64_MAX : UINT32_MAX;
    return true;
}

bool bulk_do(struct wasm_store *s, struct wasm_instance *i, struct bulk *b) {
    uint64_t *v = b->slots;
    switch (b->row) {
    case OP_MEMORY_GROW:
    case OP_TABLE_GROW:
        return grow(s, i, b);
    case OP_MEMORY_FILL:
        if (v[2])
            memset(i->mems[b->x]->base + v[0], (uint8_t)v[1], v[2]);
        return true;
    case OP_MEMORY_COPY:
        if (v[2])
            memmove(i->mems[b->x]->base + v[0], i->mems[b->y]->base + v[1], v[2]);
        return true;
    case OP_MEMORY_INIT:
        if (v[2])
            memcpy(i->mems[b->y]->base + v[0], i->mod->bytes + i->mod->datas[b->x].bytes + v[1], v[2]);
        return true;
    case OP_TABLE_FILL:
        refs_fill(i->tables[b->x]->elems + v[0], v[2], v[1]);
        return true;
    case OP_TABLE_COPY:
        if (v[2])
            memmove(i->tables[b->x]->elems + v[0], i->tables[b->y]->elems + v[1], v[2] * sizeof *v);
        return true;
    default: {
        if (!v[2])
            return true;
        const uint64_t *refs = instance_elems(i, b->x);
        if (refs)
            memcpy(i->tables[b->y]->elems + v[0], refs + v[1], v[2] * sizeof *v);
        return refs != NULL;
    }
    }
}
