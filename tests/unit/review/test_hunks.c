/* Some hunks of a difference make of a text what they say, and nothing else. */
#include "tests/unit/unit.h"

#include "base/defer.h"
#include "base/text/textdiff.h"
#include "review/hunks.h"

static void a_list_of_hunks_is_parsed_or_refused(void **state) {
    static const struct {
        const char *text;
        int count; /* -1: it names none */
    } rows[] = {{"1", 1},    {"1,3", 2}, {"2-4", 3},  {"1,4-6", 4}, {"", -1},   {"0", -1},
                {"a", -1},   {"1,", -1}, {"1-", -1},  {"4-2", -1},  {"-1", -1}, {"1001", -1},
                {"1 2", -1}, {"+1", -1}, {"1;2", -1}, {"1,,2", -1}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        bool chosen[HUNKS_MAX + 1];
        struct err err;
        int count = 0, status = hunks_parse(rows[i].text, chosen, &err);
        for (size_t k = 0; k <= HUNKS_MAX; k++)
            count += chosen[k];
        if ((status < 0) != (rows[i].count < 0) || (status == 0 && count != rows[i].count))
            fail_msg("'%s'", rows[i].text);
    }
}

/* Every choice of three hunks, applied: each line is the old or the new one, as chosen. */
static void chosen_hunks_are_applied_and_no_others(void **state) {
    struct buf old DEFER(buf_done) = BUF(4096), new DEFER(buf_done) = BUF(4096),
                   diff DEFER(buf_done) = BUF(8192);
    struct textdiff_count count;
    struct err err;
    (void)state;
    for (int i = 0; i < 60; i++) {
        bool changed = i % 20 == 10;
        assert_true(buf_addf(&old, "line %d\n", i));
        assert_true(buf_addf(&new, changed ? "LINE %d\nmore\n" : "line %d\n", i));
    }
    assert_true(textdiff(&diff, old.data, old.len, new.data, new.len, 3, &count));
    assert_int_equal(hunks_count(diff.data, diff.len), 3);
    for (unsigned choice = 0; choice < 8; choice++) {
        bool chosen[HUNKS_MAX + 1] = {false};
        struct buf got DEFER(buf_done) = BUF(4096), want DEFER(buf_done) = BUF(4096);
        for (unsigned k = 0; k < 3; k++)
            chosen[k + 1] = choice >> k & 1;
        for (int i = 0; i < 60; i++)
            assert_true(buf_addf(
                &want, i % 20 == 10 && choice >> i / 20 & 1 ? "LINE %d\nmore\n" : "line %d\n", i));
        assert_int_equal(hunks_apply(old.data, old.len, diff.data, diff.len, chosen, &got, &err),
                         0);
        assert_string_equal(got.data, want.data);
    }
    bool chosen[HUNKS_MAX + 1] = {[4] = true};
    struct buf got DEFER(buf_done) = BUF(4096);
    assert_int_equal(hunks_apply(old.data, old.len, diff.data, diff.len, chosen, &got, &err), -1);
}

static void a_line_that_looks_like_a_head_is_not_counted(void **state) {
    static const char old[] = "a\n@@ -1 +1 @@\nb\n", new[] = "a\n@@ -2 +2 @@\n@@ x\nb\n";
    struct buf diff DEFER(buf_done) = BUF(4096), got DEFER(buf_done) = BUF(4096);
    const bool chosen[HUNKS_MAX + 1] = {[1] = true};
    struct textdiff_count count;
    struct err err;
    (void)state;
    assert_true(textdiff(&diff, old, strlen(old), new, strlen(new), 3, &count));
    assert_int_equal(hunks_count(diff.data, diff.len), 1);
    assert_int_equal(hunks_apply(old, strlen(old), diff.data, diff.len, chosen, &got, &err), 0);
    assert_string_equal(got.data, new);
    assert_int_equal(hunks_count("", 0), 0);
}

static void errors_name_the_hunk_and_the_way_to_write_it(void **state) {
    static const char old[] = "a\nb\n", new[] = "a\nc\n", other[] = "x\ny\n";
    struct buf diff DEFER(buf_done) = BUF(4096), got DEFER(buf_done) = BUF(4096);
    const bool first[HUNKS_MAX + 1] = {[1] = true}, second[HUNKS_MAX + 1] = {[2] = true};
    bool chosen[HUNKS_MAX + 1];
    struct textdiff_count count;
    struct err err = {0};
    (void)state;
    assert_int_equal(hunks_parse("1;2", chosen, &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
    assert_string_equal(err.text, "'1;2' is not a list of hunks");
    assert_string_equal(err.remedy,
                        "give hunk numbers or ranges, such as 2 or 1,4-6; the first hunk is 1");
    assert_true(textdiff(&diff, old, strlen(old), new, strlen(new), 3, &count));
    assert_int_equal(hunks_apply(old, strlen(old), diff.data, diff.len, second, &got, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_string_equal(err.text, "hunk 2 does not exist: the last hunk of the file is 1");
    assert_int_equal(hunks_apply(other, strlen(other), diff.data, diff.len, first, &got, &err), -1);
    assert_string_equal(err.text, "the chosen hunks cannot be applied to the file");
}

UNIT_MAIN(cmocka_unit_test(a_list_of_hunks_is_parsed_or_refused),
          cmocka_unit_test(chosen_hunks_are_applied_and_no_others),
          cmocka_unit_test(a_line_that_looks_like_a_head_is_not_counted),
          cmocka_unit_test(errors_name_the_hunk_and_the_way_to_write_it))
