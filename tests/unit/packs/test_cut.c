#include "tests/unit/unit.h"

#include <stdlib.h>

#include "base/defer.h"
#include "packs/cut.h"

enum { SIZE = 8 << 20 };

/* Numbers without a pattern, the same in every run. */
static uint8_t *noise(size_t n) {
    uint8_t *bytes = malloc(n);
    uint64_t x = 88172645463325252u;
    for (size_t i = 0; i < n; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        bytes[i] = (uint8_t)(x >> 32);
    }
    return bytes;
}

struct ends {
    size_t v[SIZE / CUT_MIN + 2], count;
};

/* Ends of the chunks, counted from the end of the file. */
static void cut_all(const uint8_t *bytes, size_t n, struct ends *ret) {
    struct cut c;
    cut_init(&c);
    *ret = (struct ends){.count = 0};
    for (size_t at = 0; at < n;) {
        size_t len = cut_next(&c, bytes + at, n - at);
        assert_true(len > 0 && len <= CUT_MAX && (len > CUT_MIN || at + len == n));
        at += len;
        ret->v[ret->count++] = n - at;
    }
}

static bool has_end(const struct ends *e, size_t end) {
    for (size_t i = 0; i < e->count; i++)
        if (e->v[i] == end)
            return true;
    return false;
}

static void small_contents_are_one_chunk(void **state) {
    (void)state;
    uint8_t *bytes DEFER_FREE = noise(CUT_MIN);
    struct cut c;
    cut_init(&c);
    assert_int_equal(cut_next(&c, bytes, 0), 0);
    assert_int_equal(cut_next(&c, bytes, 1), 1);
    assert_int_equal(cut_next(&c, bytes, CUT_MIN), CUT_MIN);
}

static void contents_without_a_place_to_cut_are_cut_at_the_limit(void **state) {
    (void)state;
    uint8_t *bytes DEFER_FREE = calloc(1, CUT_MAX + 1);
    struct cut c;
    cut_init(&c);
    assert_int_equal(cut_next(&c, bytes, CUT_MAX + 1), CUT_MAX);
}

/* Packs of earlier versions have these chunks: a new rule would store every file again. */
static void the_places_never_change(void **state) {
    (void)state;
    uint8_t *bytes DEFER_FREE = noise(SIZE);
    struct ends ends;
    cut_all(bytes, SIZE, &ends);
    assert_int_equal(SIZE - ends.v[1], 2 * CUT_MAX);
    assert_int_equal(SIZE - ends.v[2], 2386882);
    assert_int_equal(SIZE - ends.v[3], 2473895);
    assert_int_equal(SIZE - ends.v[4], 3207822);
}

static void an_insertion_changes_only_chunks_near_it(void **state) {
    (void)state;
    uint8_t *bytes DEFER_FREE = noise(SIZE), *more DEFER_FREE = malloc(SIZE + 1);
    struct ends before, after;
    size_t kept = 0;
    memcpy(more, bytes, SIZE / 2);
    more[SIZE / 2] = 'x';
    memcpy(more + SIZE / 2 + 1, bytes + SIZE / 2, SIZE / 2);
    cut_all(bytes, SIZE, &before);
    cut_all(more, SIZE + 1, &after);
    assert_true(before.count > SIZE / CUT_MAX + 1);
    for (size_t i = 0; i < before.count; i++)
        kept += has_end(&after, before.v[i] + (before.v[i] > SIZE / 2));
    assert_true(kept + 2 >= before.count);
}

UNIT_MAIN(cmocka_unit_test(small_contents_are_one_chunk),
          cmocka_unit_test(contents_without_a_place_to_cut_are_cut_at_the_limit),
          cmocka_unit_test(the_places_never_change),
          cmocka_unit_test(an_insertion_changes_only_chunks_near_it))
