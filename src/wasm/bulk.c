/* Memories and tables, and the bulk instructions on them. */
#include "wasm/budget.h"
#include "wasm/interp.h"

#include <sys/mman.h>

/* ---- Memories and tables ---- */

/*
 * A memory above LAZY_MAX bytes is mapped when it is created, so that lack of address space is
 * reported then.
 */
enum { LAZY_MAX = 4 * PAGE_SIZE, PART_MAX = 4096, PART_UNIT = 256 };

/* A 32-bit memory has at most 65536 pages, whatever the configuration allows. */
uint64_t memory_most(const struct wasm_store *s, const struct wasm_limits *l) {
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
    m->max = memory_most(s, l);
    m->size = l->min * PAGE_SIZE;
    bool ok = l->min <= m->max && store_take(s, m->size);
    if (ok && m->size > LAZY_MAX && !memory_reach(s->engine, m, m->size)) {
        store_give(s, m->size);
        ok = false;
    }
    if (!ok) {
        engine_release(s->engine, m, sizeof *m);
        return false;
    }
    *ret = m;
    return true;
}

/* Grows the part of a small memory that is on the heap. The part doubles up to PART_MAX bytes. */
static bool reach_part(struct wasm_engine *e, struct memory *m, uint64_t end) {
    uint64_t twice = m->ready * 2 < PART_MAX ? m->ready * 2 : PART_MAX;
    uint64_t ready = ((twice > end ? twice : end) + PART_UNIT - 1) / PART_UNIT * PART_UNIT;
    uint8_t *base = engine_realloc(e, m->base, m->ready, ready);
    if (!base)
        return false;
    memset(base + m->ready, 0, ready - m->ready);
    m->base = base;
    m->ready = ready;
    return true;
}

/*
 * Maps the whole memory, once it is used beyond PART_MAX bytes. From then on its base address
 * changes only when the memory grows.
 */
static bool reach_all(struct wasm_engine *e, struct memory *m, uint64_t size) {
    uint8_t *base;
    struct pages *pages = pages_new(e, size, &base);
    if (!pages)
        return false;
    if (m->ready)
        memcpy(base, m->base, m->ready);
    engine_release(e, m->base, m->ready);
    m->pages = pages;
    m->base = base;
    m->ready = size;
    return true;
}

bool memory_reach(struct wasm_engine *e, struct memory *m, uint64_t end) {
    if (end <= m->ready)
        return true;
    return end <= PART_MAX ? reach_part(e, m, end) : reach_all(e, m, m->size);
}

/* A memory on the heap is small, so all of it counts as touched. */
void memory_touched(const struct memory *m, uint8_t *units) {
    if (m->pages)
        pages_touched(m->pages, units);
    else
        memset(units, 1, (m->ready + PAGES_UNIT - 1) / PAGES_UNIT);
}

const uint8_t *memory_unit(const struct memory *m, uint64_t unit, uint8_t copy[PAGES_UNIT]) {
    uint64_t at = unit * PAGES_UNIT;
    if (at + PAGES_UNIT <= m->ready)
        return m->base + at;
    memset(copy, 0, PAGES_UNIT);
    if (at < m->ready)
        memcpy(copy, m->base + at, m->ready - at);
    return copy;
}

static bool copy_bytes(struct wasm_engine *e, struct memory *m, bool dirty, struct memory *copy) {
    if (m->pages)
        return (copy->pages = pages_fork(m->pages, dirty, &copy->base, &m->base)) != NULL;
    if (!m->ready)
        return true;
    copy->base = engine_alloc(e, m->ready);
    if (copy->base)
        memcpy(copy->base, m->base, m->ready);
    return copy->base != NULL;
}

bool memory_fork(struct wasm_engine *e, struct memory *m, bool dirty, struct memory **ret) {
    struct memory *copy = engine_alloc(e, sizeof *copy);
    if (!copy)
        return false;
    *copy = *m;
    if (!copy_bytes(e, m, dirty, copy)) {
        engine_release(e, copy, sizeof *copy);
        return false;
    }
    *ret = copy;
    return true;
}

static bool grow_pages(struct wasm_engine *e, struct memory *m, uint64_t size) {
    if (!m->pages)
        return size <= LAZY_MAX || reach_all(e, m, size);
    if (!pages_grow(m->pages, size, &m->base))
        return false;
    m->ready = size;
    return true;
}

static bool memory_may_grow(const struct wasm_store *s, const struct memory *m, uint64_t delta) {
    return delta <= m->max - m->size / PAGE_SIZE && store_has(s, delta * PAGE_SIZE);
}

bool memory_grow(struct wasm_store *s, struct memory *m, uint64_t delta, uint64_t *ret_old) {
    uint64_t old = m->size / PAGE_SIZE;
    if (delta > m->max - old || !store_take(s, delta * PAGE_SIZE))
        return false;
    if (delta && !grow_pages(s->engine, m, m->size + delta * PAGE_SIZE)) {
        store_give(s, delta * PAGE_SIZE);
        return false;
    }
    m->size += delta * PAGE_SIZE;
    *ret_old = old;
    return true;
}

void memory_free(struct wasm_store *s, struct memory *m) {
    store_give(s, m->size);
    if (m->pages)
        pages_free(m->pages);
    else
        engine_release(s->engine, m->base, m->ready);
    engine_release(s->engine, m, sizeof *m);
}

static uint64_t table_cap(const struct wasm_store *s, const struct wasm_limits *l) {
    uint64_t cap = s->engine->cfg.table_elems;
    return l->has_max && l->max < cap ? l->max : cap;
}

/* A table above MAP_FROM elements is mapped, so that it takes memory only where it is written. */
enum { MAP_FROM = 1 << 17 };

static uint64_t *elems_new(struct wasm_engine *e, uint64_t n) {
    if (n < MAP_FROM)
        return engine_alloc(e, n * sizeof(uint64_t));
    void *p = mmap(NULL, n * sizeof(uint64_t), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void elems_free(struct wasm_engine *e, uint64_t *elems, uint64_t n) {
    if (n < MAP_FROM)
        engine_release(e, elems, n * sizeof *elems);
    else if (elems)
        munmap(elems, n * sizeof *elems);
}

void table_free(struct wasm_store *s, struct table *t) {
    store_give(s, t->size * sizeof *t->elems);
    elems_free(s->engine, t->elems, t->cap);
    engine_release(s->engine, t, sizeof *t);
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
    *t = (struct table){
        .type_limits = *l, .type = type, .max = table_cap(s, l), .size = l->min, .cap = l->min};
    uint64_t bytes = l->min <= t->max ? l->min * sizeof *t->elems : 0;
    bool taken = l->min <= t->max && store_take(s, bytes);
    if (!taken || !(t->elems = elems_new(s->engine, l->min))) {
        store_give(s, taken ? bytes : 0);
        engine_release(s->engine, t, sizeof *t);
        return false;
    }
    if (init)
        refs_fill(t->elems, t->size, init);
    *ret = t;
    return true;
}

static bool table_may_grow(const struct wasm_store *s, const struct table *t, uint64_t delta) {
    return delta <= t->max - t->size && store_has(s, delta * sizeof *t->elems);
}

static bool table_room(struct wasm_store *s, struct table *t, uint64_t size) {
    if (size <= t->cap)
        return true;
    uint64_t cap = size + size / 2 < t->max ? size + size / 2 : t->max;
    uint64_t *elems = elems_new(s->engine, cap);
    if (!elems)
        return false;
    if (t->size)
        memcpy(elems, t->elems, t->size * sizeof *elems);
    elems_free(s->engine, t->elems, t->cap);
    t->elems = elems;
    t->cap = cap;
    return true;
}

bool table_grow(struct wasm_store *s, struct table *t, uint64_t delta, uint64_t init,
                uint64_t *ret_old) {
    if (delta > t->max - t->size || !store_take(s, delta * sizeof *t->elems))
        return false;
    uint64_t size = t->size + delta;
    if (!table_room(s, t, size)) {
        store_give(s, delta * sizeof *t->elems);
        return false;
    }
    if (init) /* a null `init` is not written: new elements are zero (null) already */
        refs_fill(t->elems + t->size, delta, init);
    *ret_old = t->size;
    t->size = size;
    return true;
}

/* ---- Bulk instructions ---- */

/* Written so that at + n cannot overflow. */
static bool outside(uint64_t at, uint64_t n, uint64_t size) {
    return at > size || n > size - at;
}

/* by_bytes() and by_elems() return the fuel cost: 1 per 64 bytes or 8 elements, rounded up. */
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

static bool is_object_row(uint32_t row) {
    return wasm_ops[row].prefix == 0xfb || row == OP_REF_EQ;
}

const char *bulk_check(struct wasm_instance *i, struct bulk *b) {
    if (is_object_row(b->row))
        return object_check(i, b);
    switch (b->row) {
    case OP_MEMORY_GROW: {
        const struct memory *m = i->mems[b->x];
        uint64_t n = b->slots[0];
        if (memory_may_grow(i->store, m, n))
            b->cost = n * (PAGE_SIZE / 64);
        return NULL;
    }
    case OP_TABLE_GROW: {
        const struct table *t = i->tables[b->x];
        if (table_may_grow(i->store, t, b->slots[1]))
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

/*
 * Runs memory.grow or table.grow. Growing beyond a limit has the result -1. Lack of host memory is
 * a trap instead (returns false), because a program must not see on which host it runs.
 */
static bool grow(struct wasm_store *s, struct wasm_instance *i, struct bulk *b) {
    uint64_t old = UINT64_MAX;
    if (b->row == OP_MEMORY_GROW) {
        struct memory *m = i->mems[b->x];
        bool allowed = memory_may_grow(s, m, b->slots[0]);
        if (allowed && !memory_grow(s, m, b->slots[0], &old))
            return false;
        b->slots[0] = allowed ? old : m->type.is64 ? UINT64_MAX : UINT32_MAX;
        return true;
    }
    struct table *t = i->tables[b->x];
    bool allowed = table_may_grow(s, t, b->slots[1]);
    if (allowed && !table_grow(s, t, b->slots[1], b->slots[0], &old))
        return false;
    b->slots[0] = allowed ? old : t->type_limits.is64 ? UINT64_MAX : UINT32_MAX;
    return true;
}

static bool move_bytes(struct wasm_engine *e, struct wasm_instance *i, struct bulk *b) {
    const uint64_t *v = b->slots;
    struct memory *to = i->mems[b->row == OP_MEMORY_INIT ? b->y : b->x];
    if (!memory_reach(e, to, v[0] + v[2]))
        return false;
    if (b->row == OP_MEMORY_FILL) {
        memset(to->base + v[0], (uint8_t)v[1], v[2]);
    } else if (b->row == OP_MEMORY_INIT) {
        memcpy(to->base + v[0], i->mod->bytes + i->mod->datas[b->x].bytes + v[1], v[2]);
    } else {
        struct memory *from = i->mems[b->y];
        if (!memory_reach(e, from, v[1] + v[2]))
            return false;
        memmove(to->base + v[0], from->base + v[1], v[2]);
    }
    return true;
}

bool bulk_do(struct wasm_store *s, struct wasm_instance *i, struct bulk *b) {
    uint64_t *v = b->slots;
    if (is_object_row(b->row))
        return object_do(i, b);
    switch (b->row) {
    case OP_MEMORY_GROW:
    case OP_TABLE_GROW:
        return grow(s, i, b);
    case OP_MEMORY_FILL:
    case OP_MEMORY_COPY:
    case OP_MEMORY_INIT:
        return v[2] == 0 || move_bytes(s->engine, i, b);
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
