/* What files were, written and read again. */
#include "tests/unit/unit.h"

#include <sys/stat.h>

#include "base/defer.h"
#include "base/fs/baseline.h"

static struct stat stat_of(unsigned inode, long size) {
    return (struct stat){.st_ino = inode,
                         .st_size = size,
                         .st_mtim = {.tv_sec = 5, .tv_nsec = 7},
                         .st_ctim = {.tv_sec = -2, .tv_nsec = 1}};
}

static void whatever_a_file_is_called_it_is_found_again(void **state) {
    static const char *const names[] = {
        "a", "a b", "new\nline", "100%", "\xff\x01", "deep/\xc3\xa9/x", "cut"};
    struct buf text DEFER(buf_done) = BUF(4096);
    struct baseline b DEFER(baseline_done) = {0};
    struct err err;
    (void)state;
    assert_true(buf_addf(&text, BASELINE_HEAD));
    for (unsigned i = 0; i < 7; i++) {
        struct stat st = stat_of(i + 1, i);
        assert_true(baseline_put(&text, names[i], &st));
    }
    assert_int_equal(baseline_read(text.data, text.len, &b, &err), 0);
    assert_int_equal(b.count, 7);
    assert_false(b.cut);
    for (unsigned i = 0; i < 7; i++) {
        struct stat st = stat_of(i + 1, i);
        const struct baseline_file *f = baseline_find(&b, names[i]);
        assert_non_null(f);
        assert_true(baseline_same(f, &st));
        st.st_ctim.tv_nsec++;
        assert_false(baseline_same(f, &st));
    }
    assert_null(baseline_find(&b, "b"));
}

static void the_last_word_about_a_file_counts(void **state) {
    struct buf text DEFER(buf_done) = BUF(4096);
    struct baseline b DEFER(baseline_done) = {0};
    struct stat one = stat_of(1, 1), two = stat_of(2, 2);
    struct err err;
    (void)state;
    assert_true(baseline_put(&text, "f", &one) && baseline_put(&text, "g", &one) &&
                baseline_put(&text, "f", NULL) && baseline_put(&text, "f", &two) &&
                baseline_put(&text, "g", NULL) && buf_addf(&text, "cut\n"));
    assert_int_equal(baseline_read(text.data, text.len, &b, &err), 0);
    assert_int_equal(b.count, 2);
    assert_true(b.cut && baseline_same(baseline_find(&b, "f"), &two));
    assert_int_equal(baseline_find(&b, "g")->inode, 0);
}

static void what_is_no_baseline_is_refused(void **state) {
    static const char *const texts[] = {"1 2 3 4 a",
                                        "1 2 3 a\n",
                                        "1 2 3 4 \n",
                                        "-1 2 3 4 a\n",
                                        "1 2 3 4 %\n",
                                        "1 2 3 4 %0\n",
                                        "1 2 3 4 %00\n",
                                        "1 2 3 4 %41\n",
                                        "1 2 3 4 a b\n",
                                        "01 2 3 4 a\n",
                                        "1 2 3 4x a\n",
                                        "baseline 2\n",
                                        "1 2 3 99999999999999999999 a\n",
                                        "\n"};
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        struct baseline b DEFER(baseline_done) = {0};
        struct err err;
        if (baseline_read(texts[i], strlen(texts[i]), &b, &err) == 0)
            fail_msg("'%s'", texts[i]);
    }
}

static void a_full_buffer_keeps_whole_lines(void **state) {
    struct buf text DEFER(buf_done) = BUF(40);
    struct stat st = stat_of(1, 1);
    (void)state;
    assert_true(baseline_put(&text, "a", &st));
    size_t before = text.len;
    assert_false(baseline_put(&text, "a name that is too long for it", &st));
    assert_int_equal(text.len, before);
}

static void lines_of_some_paths_are_picked(void **state) {
    static const char text[] = "baseline 1\n1 2 3 4 .\n1 2 3 4 a\n1 2 3 4 a/b\n1 2 3 4 ab\n"
                               "1 2 3 4 d/e/f\n1 2 3 4 d/g\n1 2 3 4 d%20/e\n1 9 3 4 a\ncut\n";
    static const struct {
        const char *paths, *picked;
    } rows[] = {
        {"", "baseline 1\n1 2 3 4 .\ncut\n"},
        {"= a\n", "baseline 1\n1 2 3 4 .\n1 2 3 4 a\n1 9 3 4 a\ncut\n"},
        {"/ a\n", "baseline 1\n1 2 3 4 .\n1 2 3 4 a\n1 2 3 4 a/b\n1 9 3 4 a\ncut\n"},
        {"= d\n/ d/e\n", "baseline 1\n1 2 3 4 .\n1 2 3 4 d/e/f\ncut\n"},
        {"= d/e\n= x\n/ d/e\n", "baseline 1\n1 2 3 4 .\n1 2 3 4 d/e/f\ncut\n"},
        {"/ d%20\n", "baseline 1\n1 2 3 4 .\n1 2 3 4 d%20/e\ncut\n"},
        {"/", "baseline 1\n1 2 3 4 .\ncut\n"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct buf picked DEFER(buf_done) = BUF(1000), small DEFER(buf_done) = BUF(20);
        const char *paths = rows[i].paths;
        assert_true(baseline_pick(text, strlen(text), paths, strlen(paths), &picked));
        assert_string_equal(picked.data, rows[i].picked);
        assert_false(baseline_pick(text, strlen(text), paths, strlen(paths), &small));
    }
}

UNIT_MAIN(cmocka_unit_test(whatever_a_file_is_called_it_is_found_again),
          cmocka_unit_test(the_last_word_about_a_file_counts),
          cmocka_unit_test(what_is_no_baseline_is_refused),
          cmocka_unit_test(a_full_buffer_keeps_whole_lines),
          cmocka_unit_test(lines_of_some_paths_are_picked))
