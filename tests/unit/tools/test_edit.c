#include "tests/unit/unit.h"

#include "base/defer.h"
#include "tools/edit.h"

struct bench {
    struct buf text, diff, hint;
    struct err err;
};

static int edit(struct bench *b, const char *text, const struct edit_step *steps, size_t n) {
    *b = (struct bench){.text = BUF(1000), .diff = BUF(10000), .hint = BUF(10000)};
    assert_true(buf_add(&b->text, text, strlen(text)));
    return edit_apply(&b->text, steps, n, &b->diff, &b->hint, &b->err);
}

static void bench_done(struct bench *b) {
    buf_done(&b->text);
    buf_done(&b->diff);
    buf_done(&b->hint);
}

#define EDIT(b, text, ...)                           \
    edit(b, text, (struct edit_step[]){__VA_ARGS__}, \
         sizeof((struct edit_step[]){__VA_ARGS__}) / sizeof(struct edit_step))

static void a_unique_text_is_replaced(void **state) {
    struct bench b DEFER(bench_done);
    (void)state;
    assert_int_equal(EDIT(&b, "a\nb\nc\nd\ne\nf\ng\nh\n", {"e\n", "E1\nE2\n", 1}), 0);
    assert_string_equal(b.text.data, "a\nb\nc\nd\nE1\nE2\nf\ng\nh\n");
    assert_string_equal(b.diff.data, "@@ -2,7 +2,8 @@\n b\n c\n d\n-e\n+E1\n+E2\n f\n g\n h\n");
}

static void a_part_of_a_line_shows_the_whole_line(void **state) {
    struct bench b DEFER(bench_done);
    (void)state;
    assert_int_equal(EDIT(&b, "one two three", {"two", "2", 1}), 0);
    assert_string_equal(b.text.data, "one 2 three");
    assert_string_equal(b.diff.data, "@@ -1,1 +1,1 @@\n-one two three\n+one 2 three\n");
}

static void what_is_removed_leaves_a_hunk_of_minus_lines(void **state) {
    struct bench b DEFER(bench_done);
    (void)state;
    assert_int_equal(EDIT(&b, "a\nb\nc\n", {"b\n", "", 1}), 0);
    assert_string_equal(b.text.data, "a\nc\n");
    assert_string_equal(b.diff.data, "@@ -1,3 +1,2 @@\n a\n-b\n c\n");
}

static void all_occurrences_of_a_given_count_go(void **state) {
    struct bench b DEFER(bench_done);
    (void)state;
    assert_int_equal(EDIT(&b, "x x\nx\n", {"x", "yy", 3}), 0);
    assert_string_equal(b.text.data, "yy yy\nyy\n");
    assert_non_null(strstr(b.diff.data, "-x x\n+yy yy\n"));
}

static void edits_follow_one_another(void **state) {
    struct bench b DEFER(bench_done);
    (void)state;
    assert_int_equal(EDIT(&b, "a", {"a", "b", 1}, {"b", "c", 1}), 0);
    assert_string_equal(b.text.data, "c");
}

static void a_miss_changes_nothing_and_shows_what_is_near(void **state) {
    struct bench b DEFER(bench_done);
    (void)state;
    assert_int_equal(EDIT(&b, "int main(void) {\n    return 1;\n}\n", {"int main(void)", "x", 1},
                          {"return 2;", "return 3;", 1}),
                     -1);
    assert_string_equal(b.text.data, "int main(void) {\n    return 1;\n}\n");
    assert_int_equal(b.err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(b.err.text, "edit 2"));
    assert_non_null(strstr(b.hint.data, "line 2:\n     2\t    return 1;\n"));
}

static void too_many_are_counted_and_shown(void **state) {
    struct bench b DEFER(bench_done);
    (void)state;
    assert_int_equal(EDIT(&b, "x = 1\ny = 1\n", {"= 1", "= 2", 1}), -1);
    assert_non_null(strstr(b.err.text, "occurs 2 times, not 1"));
    assert_non_null(strstr(b.err.remedy, "count"));
    assert_string_equal(b.hint.data, "     1\tx = 1\n     2\ty = 1\n");
}

static void edits_that_say_nothing_are_refused(void **state) {
    struct bench b DEFER(bench_done), c DEFER(bench_done);
    (void)state;
    assert_int_equal(EDIT(&b, "abc", {"", "x", 1}), -1);
    assert_int_equal(EDIT(&c, "abc", {"b", "b", 1}), -1);
}

static void a_file_cannot_grow_without_bound(void **state) {
    struct bench b DEFER(bench_done);
    char long_text[900];
    (void)state;
    memset(long_text, 'z', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    assert_int_equal(EDIT(&b, "ab", {"a", long_text, 1}, {"b", long_text, 1}), -1);
    assert_int_equal(b.err.code, ERR_LIMIT);
    assert_string_equal(b.text.data, "ab");
}

UNIT_MAIN(cmocka_unit_test(a_unique_text_is_replaced),
          cmocka_unit_test(a_part_of_a_line_shows_the_whole_line),
          cmocka_unit_test(what_is_removed_leaves_a_hunk_of_minus_lines),
          cmocka_unit_test(all_occurrences_of_a_given_count_go),
          cmocka_unit_test(edits_follow_one_another),
          cmocka_unit_test(a_miss_changes_nothing_and_shows_what_is_near),
          cmocka_unit_test(too_many_are_counted_and_shown),
          cmocka_unit_test(edits_that_say_nothing_are_refused),
          cmocka_unit_test(a_file_cannot_grow_without_bound))
