#include "tests/unit/unit.h"

#include "base/defer.h"
#include "tools/patch_text.h"

struct bench {
    struct patch patch;
    struct buf text, hint;
    struct patch_counts counts;
    struct err err;
};

static int bench_apply(struct bench *b, const char *text, const char *patch) {
    *b = (struct bench){.text = BUF(10000), .hint = BUF(10000)};
    assert_true(buf_add(&b->text, text, strlen(text)));
    if (patch_parse(patch, &b->patch, &b->err) < 0)
        return -1;
    return patch_apply(&b->patch, &b->patch.files[0], &b->text, &b->counts, &b->hint, &b->err);
}

static void bench_done(struct bench *b) {
    patch_done(&b->patch);
    buf_done(&b->text);
    buf_done(&b->hint);
}

#define DIFF "--- a/f\n+++ b/f\n"

static const struct {
    const char *what, *before, *patch, *after;
} cases[] = {
    {"a hunk of a unified diff", "a\nb\nc\n", DIFF "@@ -1,3 +1,4 @@\n a\n-b\n+B\n+B2\n c\n",
     "a\nB\nB2\nc\n"},
    {"a line number that is wrong chooses the nearest place", "x\ny\nx\ny\nx\n",
     DIFF "@@ -4 +4 @@\n-x\n+X\n", "x\ny\nx\ny\nX\n"},
    {"an insertion behind a line", "a\nb\n", DIFF "@@ -1,0 +2 @@\n+new\n", "a\nnew\nb\n"},
    {"an insertion into an empty file", "", DIFF "@@ -0,0 +1 @@\n+new\n", "new\n"},
    {"removed comments of SQL are not a header", "-- x\n-- z\n",
     DIFF "@@ -1,2 +1,2 @@\n--- x\n+++ y\n -- z\n", "++ y\n-- z\n"},
    {"lines of a file that end with a carriage return", "a\r\nb\r\n", DIFF "@@ -2 +2 @@\n-b\n+c\n",
     "a\r\nc\r\n"},
    {"a last line without a newline", "a\nb", DIFF "@@ -1,2 +1,3 @@\n a\n b\n+c\n", "a\nb\nc\n"},
    {"a last line that keeps no newline", "a",
     DIFF "@@ -1 +1 @@\n-a\n\\ No newline\n+b\n\\ No newline\n", "b"},
    {"everything is removed", "a\n", DIFF "@@ -1 +0,0 @@\n-a\n", ""},
    {"empty lines that the header counts", "a\n\nb\n", DIFF "@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n",
     "a\n\nc\n"},
    {"empty lines behind a hunk", "a\nb\n", DIFF "@@ -1 +1 @@\n-a\n+c\n\n\n", "c\nb\n"},
    {"an anchor", "f:\n x\ng:\n x\n",
     "*** Begin Patch\n*** Update File: f\n@@ g:\n- x\n+ y\n*** End Patch", "f:\n x\ng:\n y\n"},
    {"an insertion behind an anchor", "f:\n x\n",
     "*** Begin Patch\n*** Update File: f\n@@ f:\n+ w\n*** End Patch", "f:\n w\n x\n"},
    {"the end of the file", "x\ny\nx\n",
     "*** Begin Patch\n*** Update File: f\n@@\n-x\n+z\n*** End of File\n*** End Patch",
     "x\ny\nz\n"},
    {"an added file", "", "*** Begin Patch\n*** Add File: f\n+a\n+\n+b\n*** End Patch", "a\n\nb\n"},
};

static void a_patch_gives_the_expected_text(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct bench b DEFER(bench_done);
        int r = bench_apply(&b, cases[i].before, cases[i].patch);
        if (r < 0 || strcmp(b.text.data ? b.text.data : "", cases[i].after) != 0)
            fail_msg("%s: %s", cases[i].what, r < 0 ? b.err.text : b.text.data);
    }
}

static void an_unclear_place_is_refused(void **state) {
    struct bench b DEFER(bench_done);
    (void)state;
    assert_int_equal(
        bench_apply(&b, "x\nx\n", "*** Begin Patch\n*** Update File: f\n-x\n+y\n*** End Patch"),
        -1);
    assert_int_equal(b.err.code, ERR_EXISTS);
    assert_string_equal(b.text.data, "x\nx\n");
}

static void indentation_must_match(void **state) {
    struct bench b DEFER(bench_done);
    (void)state;
    assert_int_equal(bench_apply(&b, "    return x\n", DIFF "@@ -1 +1 @@\n-return x\n+return y\n"),
                     -1);
    assert_int_equal(b.err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(b.hint.data, "nearest, line 1:"));
}

/* The search for a place runs on the thread of the loop, so its work is limited. */
static void the_work_is_limited(void **state) {
    enum { LINES = 200000, HUNKS = 300 };
    struct buf text DEFER(buf_done) = BUF(1 << 21), patch DEFER(buf_done) = BUF(1 << 20);
    struct buf hint DEFER(buf_done) = BUF(1000);
    struct patch p DEFER(patch_done) = {0};
    struct patch_counts counts;
    struct err err;
    (void)state;
    for (size_t i = 0; i < LINES; i++)
        assert_true(buf_add(&text, "same\n", 5));
    assert_true(buf_addf(&patch, DIFF));
    for (size_t i = 0; i < HUNKS; i++)
        assert_true(buf_addf(&patch, "@@ -1 +1 @@\n same\n same\n same\n-other\n+x\n"));
    assert_int_equal(patch_parse(patch.data, &p, &err), 0);
    p.work = LINES;
    assert_int_equal(patch_apply(&p, &p.files[0], &text, &counts, &hint, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT);
}

/* Lines that a hunk adds are passed at each place, so they are work too. */
static void added_lines_are_work(void **state) {
    enum { LINES = 2000, ADDED = 1000 };
    const struct {
        uint64_t work;
        enum err_code code;
    } limits[] = {{100 * LINES, ERR_LIMIT}, {PATCH_WORK, ERR_NOT_FOUND}};
    (void)state;
    for (size_t k = 0; k < sizeof(limits) / sizeof(*limits); k++) {
        struct buf text DEFER(buf_done) = BUF(1 << 20), patch DEFER(buf_done) = BUF(1 << 20);
        struct buf hint DEFER(buf_done) = BUF(1000);
        struct patch p DEFER(patch_done) = {0};
        struct patch_counts counts;
        struct err err;
        for (size_t i = 0; i < LINES; i++)
            assert_true(buf_add(&text, "same\n", 5));
        assert_true(buf_addf(&patch, DIFF "@@ -1 +1 @@\n"));
        for (size_t i = 0; i < ADDED; i++)
            assert_true(buf_add(&patch, "+\n", 2));
        assert_true(buf_addf(&patch, "-other\n"));
        assert_int_equal(patch_parse(patch.data, &p, &err), 0);
        p.work = limits[k].work;
        assert_int_equal(patch_apply(&p, &p.files[0], &text, &counts, &hint, &err), -1);
        assert_int_equal(err.code, limits[k].code);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_patch_gives_the_expected_text),
        cmocka_unit_test(an_unclear_place_is_refused),
        cmocka_unit_test(indentation_must_match),
        cmocka_unit_test(the_work_is_limited),
        cmocka_unit_test(added_lines_are_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
