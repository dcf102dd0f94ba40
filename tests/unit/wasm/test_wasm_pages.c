/* Memory that nobody touched is neither read, saved nor hashed, and what was touched always is:
   in a new store, after forks, and after growing. */
#include "tests/unit/wasm_cell.h"

#include "base/sha256.h"
#include "wasm/engine.h"

enum { UNIT = 4096, HASH = 32, PAGES = 384, UNITS = PAGES * 16 };

static const char pokes[] =
    "(module (memory (export \"m\") 384) (table (export \"t\") 600 funcref) (global i64 (i64.const "
    "9))"
    "  (data (i32.const 40000) \"image\")"
    "  (func (export \"poke\") (param i32)" /* a unit: its first byte becomes its number */
    "    (i32.store8 (i32.mul (local.get 0) (i32.const 4096)) (local.get 0)))"
    "  (func (export \"wipe\") (param i32)"
    "    (memory.fill (i32.mul (local.get 0) (i32.const 4096)) (i32.const 0) (i32.const 4096)))"
    "  (func (export \"grow\") (param i32) (drop (memory.grow (local.get 0)))))";

static void act(struct cell *c, const char *what, int32_t unit) {
    start(c, what, unit);
    assert_int_equal(wasm_run(c->store, UINT64_MAX)->outcome, WASM_DONE);
}

static const uint8_t *bytes_of(struct cell *c, size_t *size) {
    struct wasm_extern m;
    assert_true(wasm_export(c->instance, "m", 1, &m));
    return wasm_memory_bytes(c->store, m, size);
}

/* ---- The hash, written down once more without any skipping ---- */

static void hash(const void *p, size_t n, uint8_t ret[HASH]) {
    struct sha256 h;
    sha256_init(&h);
    sha256_add(&h, p, n);
    sha256_end(&h, ret);
}

/* Of n bytes in whole units, over a tree of 2^k leaves. */
static void plain_root(const uint8_t *bytes, size_t n, uint8_t ret[HASH]) {
    static const uint8_t nothing[UNIT];
    size_t leaves = 1;
    while (leaves * UNIT < n)
        leaves *= 2;
    uint8_t *nodes = calloc(leaves, HASH);
    assert_non_null(nodes);
    for (size_t i = 0; i < leaves; i++)
        hash(i * UNIT < n ? bytes + i * UNIT : nothing, UNIT, nodes + i * HASH);
    for (; leaves > 1; leaves /= 2)
        for (size_t i = 0; i < leaves / 2; i++)
            hash(nodes + 2 * i * HASH, (size_t)2 * HASH, nodes + i * HASH);
    memcpy(ret, nodes, HASH);
    free(nodes);
}

static void add_number(struct sha256 *h, uint64_t v) {
    uint8_t b[8];
    for (int i = 0; i < 8; i++)
        b[i] = (uint8_t)(v >> 8 * i);
    sha256_add(h, b, 8);
}

static void plain_hash(struct cell *c, uint8_t ret[HASH]) {
    struct sha256 h;
    uint8_t root[HASH];
    static const uint8_t table[2 * UNIT]; /* 600 null references */
    size_t size;
    const uint8_t *bytes = bytes_of(c, &size);
    sha256_init(&h);
    add_number(&h, size);
    plain_root(bytes, size, root);
    sha256_add(&h, root, HASH);
    add_number(&h, 9);
    add_number(&h, 600);
    plain_root(table, sizeof table, root);
    sha256_add(&h, root, HASH);
    sha256_end(&h, ret);
}

static void the_hash_is_a_tree_over_all_bytes(void **state) {
    (void)state;
    struct cell c;
    uint8_t want[HASH], got[HASH];
    struct err err;
    cell_open(&c, pokes);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(wasm_store_hash(c.store, got, &err), 0);
        plain_hash(&c, want);
        assert_memory_equal(got, want, HASH);
        act(&c, "poke", round ? UNITS - 1 : 77);
        act(&c, "grow", round);
    }
    cell_close(&c);
}

/* ---- Little work for little touched ---- */

static void a_capture_looks_at_touched_units_only(void **state) {
    (void)state;
    struct cell c;
    struct err err;
    uint8_t h[HASH];
    struct buf state_ DEFER(buf_done) = BUF(64 << 20);
    cell_open(&c, pokes);
    for (int i = 0; i < 10; i++)
        act(&c, "poke", 100 + i * 500);
    uint64_t before = c.engine->work;
    assert_int_equal(wasm_capture(c.store, &state_, &err), 0);
    assert_in_range(c.engine->work - before, 10, 40);
    assert_in_range(state_.len, 10 * UNIT, 12 * UNIT);
    before = c.engine->work;
    assert_int_equal(wasm_store_hash(c.store, h, &err), 0);
    assert_in_range(c.engine->work - before, 10, 40);
    cell_close(&c);
}

/* ---- Nothing touched is missed ---- */

/* What a store must hold: the number of each unit in its first byte, or 0. */
struct model {
    uint8_t first[UNITS];
};

static void both(struct cell *c, struct model *m, const char *what, int32_t unit) {
    act(c, what, unit);
    m->first[unit] = strcmp(what, "poke") == 0 ? (uint8_t)unit : 0;
}

static void expect_model(struct cell *c, const struct model *m) {
    size_t size;
    const uint8_t *bytes = bytes_of(c, &size);
    assert_in_range(size, (size_t)UNITS * UNIT, SIZE_MAX);
    for (int i = 0; i < UNITS; i++)
        assert_int_equal(bytes[(size_t)i * UNIT], m->first[i]);
    assert_memory_equal(bytes + 40000, "image", 5);
}

/* Through bytes, and by hash. */
static void expect_whole(struct cell *c, const struct model *m) {
    uint8_t want[HASH], got[HASH];
    struct err err;
    assert_int_equal(wasm_store_hash(c->store, want, &err), 0);
    move(c);
    assert_int_equal(wasm_store_hash(c->store, got, &err), 0);
    assert_memory_equal(got, want, HASH);
    expect_model(c, m);
}

static void captures_after_forks_miss_nothing(void **state) {
    (void)state;
    struct cell a, b, c;
    struct err err;
    struct model ma = {0}, mb, mc;
    cell_open(&a, pokes);
    both(&a, &ma, "poke", 3);
    both(&a, &ma, "poke", 4000);
    b = a;
    assert_int_equal(wasm_fork(a.store, &b.store, &err), 0); /* seals a's pages */
    b.instance = wasm_instance_at(b.store, 0);
    mb = ma;
    both(&a, &ma, "poke", 5);
    both(&b, &mb, "poke", 6);
    both(&b, &mb, "wipe", 3); /* a page of the image that is zero in one of them */
    c = b;
    assert_int_equal(wasm_fork(b.store, &c.store, &err), 0); /* copies b's own pages */
    c.instance = wasm_instance_at(c.store, 0);
    mc = mb;
    both(&c, &mc, "poke", 7);
    both(&c, &mc, "poke", 4001);
    act(&c, "grow", 2); /* copies all that is not zero */
    expect_whole(&a, &ma);
    expect_whole(&b, &mb);
    expect_whole(&c, &mc);
    wasm_store_free(b.store);
    wasm_store_free(c.store);
    cell_close(&a);
}

/* A wiped unit of the initial image is saved as zero. */
static void a_wiped_unit_of_the_image_stays_wiped(void **state) {
    (void)state;
    struct cell c;
    size_t size;
    cell_open(&c, pokes);
    act(&c, "wipe", 40000 / UNIT);
    move(&c);
    assert_int_equal(bytes_of(&c, &size)[40000], 0);
    cell_close(&c);
}

/* The initial image has the segment's bytes; the memory of a store that stopped before has not. */
static void a_segment_that_was_not_written_yet_is_not_there_after_a_save(void **state) {
    (void)state;
    struct cell c = {.engine = wasm_engine_new(NULL)};
    struct err err;
    size_t size;
    c.module = load(c.engine, pokes);
    c.store = wasm_store_new(c.engine);
    wasm_fuel_add(c.store, PAGES * 1024 + 600 / 8);
    assert_int_equal(wasm_instance_new(c.store, c.module, NULL, 0, &c.instance, &err), 0);
    assert_int_equal(wasm_run(c.store, UINT64_MAX)->outcome, WASM_OUT_OF_FUEL);
    move(&c);
    assert_int_equal(bytes_of(&c, &size)[40000], 0);
    wasm_fuel_add(c.store, 10);
    assert_int_equal(wasm_run(c.store, UINT64_MAX)->outcome, WASM_DONE);
    assert_memory_equal(bytes_of(&c, &size) + 40000, "image", 5);
    cell_close(&c);
}

UNIT_MAIN(cmocka_unit_test(the_hash_is_a_tree_over_all_bytes),
          cmocka_unit_test(a_capture_looks_at_touched_units_only),
          cmocka_unit_test(captures_after_forks_miss_nothing),
          cmocka_unit_test(a_wiped_unit_of_the_image_stays_wiped),
          cmocka_unit_test(a_segment_that_was_not_written_yet_is_not_there_after_a_save))
