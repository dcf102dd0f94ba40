/* Differences of texts: as people know them, and such that they can be applied. */
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "base/text/textdiff.h"
#include "tests/unit/unit.h"

static void check_diff(const char *a, const char *b, unsigned context, const char *hunks) {
    struct buf out DEFER(buf_done) = BUF(1 << 20), again DEFER(buf_done) = BUF(1 << 20);
    struct textdiff_count n;
    assert_true(textdiff(&out, a, strlen(a), b, strlen(b), context, &n));
    assert_string_equal(out.len ? out.data : "", hunks);
    assert_true(textdiff_apply(&again, a, strlen(a), hunks, strlen(hunks)));
    assert_string_equal(again.len ? again.data : "", b);
}

static void small_texts_differ_as_expected(void **state) {
    (void)state;
    check_diff("", "", 3, "");
    check_diff("a\n", "a\n", 3, "");
    check_diff("", "a\nb\n", 3, "@@ -0,0 +1,2 @@\n+a\n+b\n");
    check_diff("a\nb\n", "", 3, "@@ -1,2 +0,0 @@\n-a\n-b\n");
    check_diff("a\nb\nc\n", "a\nx\nc\n", 1, "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n");
    check_diff("a\nb\nc\n", "a\nc\n", 0, "@@ -2,1 +1,0 @@\n-b\n");
    check_diff("a\nc\n", "a\nb\nc\n", 0, "@@ -1,0 +2,1 @@\n+b\n");
}

static void an_end_without_newline_is_told(void **state) {
    (void)state;
    check_diff("a", "a\n", 3, "@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+a\n");
    check_diff("x\na", "y\na", 3, "@@ -1,2 +1,2 @@\n-x\n+y\n a\n\\ No newline at end of file\n");
}

static void distant_changes_are_hunks_of_their_own(void **state) {
    (void)state;
    check_diff("1\n2\n3\n4\n5\n6\n7\n", "x\n2\n3\n4\n5\n6\ny\n", 1,
               "@@ -1,2 +1,2 @@\n-1\n+x\n 2\n@@ -6,2 +6,2 @@\n 6\n-7\n+y\n");
    check_diff("1\n2\n3\n", "x\n2\ny\n", 1, "@@ -1,3 +1,3 @@\n-1\n+x\n 2\n-3\n+y\n");
}

static uint32_t next(uint32_t *seed) {
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 16;
}

static void make(struct buf *out, uint32_t *seed, size_t lines, uint32_t kinds) {
    for (size_t i = 0; i < lines; i++)
        assert_true(buf_addf(out, "%u\n", next(seed) % kinds));
}

/* Also those in which a search has to give up. */
static void whatever_differs_can_be_applied(void **state) {
    (void)state;
    static const struct {
        size_t a, b;
        uint32_t kinds;
    } rows[] = {
        {40, 40, 3}, {300, 310, 20}, {5000, 5000, 1000000}, {20000, 19000, 50}, {1, 900, 2}};
    uint32_t seed = 7;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct buf a DEFER(buf_done) = BUF(1 << 22), b DEFER(buf_done) = BUF(1 << 22),
                     out DEFER(buf_done) = BUF(1 << 24), again DEFER(buf_done) = BUF(1 << 22);
        struct textdiff_count n;
        make(&a, &seed, rows[i].a, rows[i].kinds);
        make(&b, &seed, rows[i].b, rows[i].kinds);
        assert_true(textdiff(&out, a.data, a.len, b.data, b.len, 3, &n));
        assert_true(textdiff_apply(&again, a.data, a.len, out.data, out.len));
        assert_string_equal(again.data, b.data);
        assert_int_equal(rows[i].a + n.added, rows[i].b + n.removed);
    }
}

static void the_shortest_way_is_found(void **state) {
    (void)state;
    struct buf out DEFER(buf_done) = BUF(1 << 20);
    struct textdiff_count n;
    const char *a = "a\nb\nc\na\nb\nb\na\n", *b = "c\nb\na\nb\na\nc\n";
    assert_true(textdiff(&out, a, strlen(a), b, strlen(b), 3, &n));
    assert_int_equal(n.added + n.removed, 5);
}

static void what_does_not_fit_is_not_begun(void **state) {
    (void)state;
    struct buf out DEFER(buf_done) = BUF(20);
    struct textdiff_count n = {0};
    assert_true(buf_add(&out, "before", 6));
    assert_false(textdiff(&out, "a\nb\n", 4, "c\nd\n", 4, 3, &n));
    assert_string_equal(out.data, "before");
    assert_int_equal(n.added, 2);
}

static void hunks_for_another_text_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "x",
        "@@ -1,1 +1,1 @@\n",
        "@@ -1,1 +1,1 @@\n-b\n+c\n",
        "@@ -2,1 +2,1 @@\n-a\n+c\n",
        "@@ -9,0 +9,1 @@\n+c\n",
        "@@ -1,1 +1,1 @@\n-a\n-a\n",
        "@@ -1,1 +1,1 @@\n?a\n",
        "@@ -1,1 +1,1 @@\n-a\n+c",
        "@@ -99999999999,1 +1,1 @@\n-a\n+c\n",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct buf out DEFER(buf_done) = BUF(1 << 10);
        assert_false(textdiff_apply(&out, "a\n", 2, bad[i], strlen(bad[i])));
    }
}

UNIT_MAIN(cmocka_unit_test(small_texts_differ_as_expected),
          cmocka_unit_test(an_end_without_newline_is_told),
          cmocka_unit_test(distant_changes_are_hunks_of_their_own),
          cmocka_unit_test(whatever_differs_can_be_applied),
          cmocka_unit_test(the_shortest_way_is_found),
          cmocka_unit_test(what_does_not_fit_is_not_begun),
          cmocka_unit_test(hunks_for_another_text_are_refused))
