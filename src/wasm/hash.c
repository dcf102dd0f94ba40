/*
 * The hash of a store: docs/internals/cell-state.md.
 *
 * Memories and tables are trees over units of 4 KiB. The hashes of zero units, and of trees of
 * them, are known, so untouched units are neither read nor hashed.
 */
#include "wasm/engine.h"

enum { UNIT = PAGES_UNIT, HASH = 32, LEVELS = 64, UNIT_ELEMS = UNIT / 8 };

/* The memory or table that a tree of hashes is made over. */
struct leaves {
    struct wasm_engine *engine;
    const uint8_t *units; /* a byte per unit; 0: all bytes of the unit are zero */
    uint64_t n;
    const struct memory *mem;  /* the memory to hash; NULL: hash `table` */
    const struct table *table; /* the table to hash; NULL: hash `mem` */
    uint8_t zero[LEVELS][HASH];
};

static void hash_bytes(const void *p, size_t n, uint8_t ret[HASH]) {
    struct sha256 h;
    sha256_init(&h);
    sha256_add(&h, p, n);
    sha256_end(&h, ret);
}

static void hash_two(const uint8_t *left, const uint8_t *right, uint8_t ret[HASH]) {
    struct sha256 h;
    sha256_init(&h);
    sha256_add(&h, left, HASH);
    sha256_add(&h, right, HASH);
    sha256_end(&h, ret);
}

static void put_le(uint8_t *to, uint64_t v) {
    for (int i = 0; i < 8; i++)
        to[i] = (uint8_t)(v >> 8 * i);
}

static void hash_n(struct sha256 *h, uint64_t v) {
    uint8_t bytes[8];
    put_le(bytes, v);
    sha256_add(h, bytes, 8);
}

static void hash_leaf(const struct leaves *l, uint64_t unit, uint8_t ret[HASH]) {
    uint8_t copy[UNIT] = {0};
    const uint8_t *bytes = copy;
    l->engine->work++;
    if (l->mem) {
        bytes = memory_unit(l->mem, unit, copy);
    } else {
        uint64_t from = unit * UNIT_ELEMS, left = l->table->size - from;
        for (uint64_t i = 0; i < UNIT_ELEMS && i < left; i++)
            put_le(copy + i * 8, l->table->elems[from + i]);
    }
    hash_bytes(bytes, UNIT, ret);
}

/* Hashes the tree of 2^level units from unit `at` on; units beyond the end count as zero. */
static void hash_tree(const struct leaves *l, unsigned level, uint64_t at, uint8_t ret[HASH]) {
    uint64_t have = at < l->n ? l->n - at : 0, span = UINT64_C(1) << level;
    if (!have || !memchr(l->units + at, 1, have < span ? have : span)) {
        memcpy(ret, l->zero[level], HASH);
        return;
    }
    if (level == 0) {
        hash_leaf(l, at, ret);
        return;
    }
    uint8_t left[HASH], right[HASH];
    hash_tree(l, level - 1, at, left);
    hash_tree(l, level - 1, at + span / 2, right);
    hash_two(left, right, ret);
}

/* Adds the hash of the whole tree. size: bytes of the memory, or elements of the table. */
static void hash_root(struct sha256 *h, struct leaves *l, uint64_t size) {
    static const uint8_t nothing[UNIT];
    unsigned height = 0;
    hash_bytes(nothing, UNIT, l->zero[0]);
    while (UINT64_C(1) << height < l->n) {
        hash_two(l->zero[height], l->zero[height], l->zero[height + 1]);
        height++;
    }
    uint8_t root[HASH];
    hash_tree(l, height, 0, root);
    hash_n(h, size);
    sha256_add(h, root, HASH);
}

static bool hash_memory(struct sha256 *h, struct wasm_engine *e, const struct memory *m) {
    uint64_t n = m->size / UNIT;
    uint8_t *units = engine_alloc(e, n);
    if (!units)
        return false;
    memory_touched(m, units);
    struct leaves l = {.engine = e, .units = units, .n = n, .mem = m};
    hash_root(h, &l, m->size);
    engine_release(e, units, n);
    return true;
}

static bool is_null(const uint64_t *refs, uint64_t n) {
    return refs[0] == 0 && memcmp(refs, refs + 1, (n - 1) * sizeof *refs) == 0;
}

static bool hash_table(struct sha256 *h, struct wasm_engine *e, const struct table *t) {
    uint64_t n = (t->size + UNIT_ELEMS - 1) / UNIT_ELEMS;
    uint8_t *units = engine_alloc(e, n);
    if (!units)
        return false;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t left = t->size - i * UNIT_ELEMS;
        units[i] = !is_null(t->elems + i * UNIT_ELEMS, left < UNIT_ELEMS ? left : UNIT_ELEMS);
    }
    struct leaves l = {.engine = e, .units = units, .n = n, .table = t};
    hash_root(h, &l, t->size);
    engine_release(e, units, n);
    return true;
}

static void hash_objects(struct sha256 *h, const struct wasm_store *s) {
    for (uint32_t i = 0; i < s->n_objs; i++) {
        hash_n(h, s->objs[i].n);
        for (uint32_t k = 0; k < s->objs[i].n_slots; k++)
            hash_n(h, s->objs[i].slots[k]);
    }
}

int wasm_store_hash(struct wasm_store *s, uint8_t hash[32], struct err *err) {
    struct sha256 h;
    bool ok = true;
    sha256_init(&h);
    for (uint32_t i = 0; ok && i < s->n_mems; i++)
        ok = hash_memory(&h, s->engine, s->mems[i]);
    for (uint32_t i = 0; i < s->n_globals; i++)
        for (unsigned k = 0; k < slots_of(s->globals[i]->type); k++)
            hash_n(&h, s->globals[i]->value[k]);
    for (uint32_t i = 0; ok && i < s->n_tables; i++)
        ok = hash_table(&h, s->engine, s->tables[i]);
    if (!ok)
        return err_set(err, ERR_LIMIT, "cannot hash the store: out of memory");
    hash_objects(&h, s);
    sha256_end(&h, hash);
    return 0;
}
