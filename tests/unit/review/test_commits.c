#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "review/commits.h"
#include "review/flags.h"

#define NONE "0000000000000000000000000000000000000000"
#define OLD "1111111111111111111111111111111111111111"
#define NEW "2222222222222222222222222222222222222222"
#define PAST "3333333333333333333333333333333333333333"
#define TREE "4444444444444444444444444444444444444444"

/* What git prints has NULs in it: parse(c, "...") takes a literal, without the last one. */
#define parse(c, text, err) commits_parse(text, sizeof(text) - 1, c, err)

static const char changed[] = ":100644 100755 " OLD " " NEW " M\0run.sh\0"
                              ":100644 000000 " OLD " " NONE " D\0gone\0"
                              ":000000 160000 " NONE " " OLD " A\0module";

static void add_objects(struct commits *c, const char *lines) {
    c->objects = BUF(4096);
    assert_true(buf_add(&c->objects, lines, strlen(lines)));
    commits_add_objects(c);
}

static void rows_of_git_are_read(void **state) {
    (void)state;
    struct commits c DEFER(commits_done) = {.count = 0};
    assert_int_equal(commits_parse(changed, sizeof(changed), &c, NULL), 0);
    assert_int_equal(c.count, 3);
    assert_string_equal(c.files[0].path, "run.sh");
    assert_int_equal(c.files[0].change, 'M');
    assert_int_equal(c.files[0].before, 0100644);
    assert_int_equal(c.files[0].after, 0100755);
    assert_string_equal(c.files[0].blob, NEW);
    assert_int_equal(c.files[1].change, 'D');
    assert_int_equal(c.files[2].change, 'A');
    assert_true(commits_has_blob(&c.files[0]));
    assert_false(commits_has_blob(&c.files[1]));
    assert_false(commits_has_blob(&c.files[2]));
}

static void a_row_that_git_does_not_print_is_refused(void **state) {
    (void)state;
    struct err err;
    struct commits c DEFER(commits_done) = {.count = 0};
    assert_int_equal(parse(&c, ":100644 100644 " OLD " " NEW " M\0", &err), -1);
    assert_int_equal(parse(&c, ":100644 100644 " OLD " " NEW " M\0\0", &err), -1);
    assert_int_equal(parse(&c, ":100644 100644 " OLD " " NEW " X\0a\0", &err), -1);
    assert_int_equal(parse(&c, ":100644 100644 " OLD " 22 M\0a\0", &err), -1);
    assert_int_equal(parse(&c, "100644\0a\0", &err), -1);
    assert_string_equal(err.text, "git's list of changes cannot be read");
    assert_int_equal(c.count, 0);
}

static void objects_of_earlier_commits_are_added_and_known_ones_are_not(void **state) {
    (void)state;
    struct commits c DEFER(commits_done) = {.count = 0};
    assert_int_equal(commits_parse(changed, sizeof(changed), &c, NULL), 0);
    add_objects(&c, OLD "\n" TREE " \n" NEW " run.sh\n" PAST " key.pem\nwords here\n");
    assert_int_equal(c.count, 4);
    assert_int_equal(c.files[3].change, 'C');
    assert_string_equal(c.files[3].path, "key.pem");
    assert_string_equal(c.files[3].blob, PAST);
}

static void sizes_are_those_that_git_prints_and_directories_go(void **state) {
    (void)state;
    static const char sizes[] = NEW " blob 12\n" PAST " blob 7\n" TREE " tree 40\n";
    struct commits c DEFER(commits_done) = {.count = 0};
    assert_int_equal(commits_parse(changed, sizeof(changed), &c, NULL), 0);
    add_objects(&c, PAST " key.pem\n" TREE " folder\n");
    assert_int_equal(c.count, 5);
    assert_int_equal(commits_set_sizes(&c, sizes, strlen(sizes), NULL), 0);
    assert_int_equal(c.count, 4);
    assert_int_equal(c.files[0].size, 12);
    assert_int_equal(c.files[3].size, 7);
    assert_string_equal(c.files[3].path, "key.pem");
}

static void sizes_that_are_cut_short_are_refused(void **state) {
    (void)state;
    struct err err;
    struct commits c DEFER(commits_done) = {.count = 0};
    assert_int_equal(commits_parse(changed, sizeof(changed), &c, NULL), 0);
    assert_int_equal(commits_set_sizes(&c, NEW " blob", strlen(NEW " blob"), &err), -1);
    assert_string_equal(err.text, "git's list of objects cannot be read");
}

static void only_keys_of_earlier_commits_are_kept(void **state) {
    (void)state;
    static const char sizes[] = NEW " blob 3\n" PAST " blob 32\n" TREE " blob 5\n";
    static const char contents[] =
        NEW " blob 3\nabc\n" PAST " blob 32\n-----BEGIN RSA PRIVATE KEY-----\n\n" TREE
            " blob 5\nplain\n";
    struct commits c DEFER(commits_done) = {.count = 0};
    assert_int_equal(commits_parse(changed, sizeof(changed), &c, NULL), 0);
    add_objects(&c, PAST " notes\n" TREE " other\n");
    assert_int_equal(commits_set_sizes(&c, sizes, strlen(sizes), NULL), 0);
    uint64_t most = commits_scan_limit(&c);
    assert_int_equal(most, COMMITS_SCAN_MAX);
    assert_int_equal(commits_scan(&c, contents, strlen(contents), most, NULL), 0);
    assert_true(c.files[3].flags & FLAG_SECRET);
    commits_keep_worthy(&c, 1u << 30);
    assert_int_equal(c.count, 4);
    assert_string_equal(c.files[3].path, "notes");
    assert_true(c.files[0].flags & 1u << 30);
    assert_false(c.files[1].flags & 1u << 30); /* deleted */
}

static void contents_that_are_cut_short_are_refused(void **state) {
    (void)state;
    static const char contents[] = NEW " blob 3\nab";
    struct err err;
    struct commits c DEFER(commits_done) = {.count = 0};
    assert_int_equal(commits_parse(changed, sizeof(changed), &c, NULL), 0);
    c.files[0].size = 3;
    assert_int_equal(commits_scan(&c, contents, strlen(contents), 100, &err), -1);
    assert_string_equal(err.text, "git's objects cannot be read");
}

static void many_large_files_lower_the_limit(void **state) {
    (void)state;
    struct commits c DEFER(commits_done) = {.count = 0};
    for (int i = 0; i < 100; i++) {
        assert_int_equal(commits_parse(changed, sizeof(changed), &c, NULL), 0);
        c.files[c.count - 3].size = COMMITS_SCAN_MAX;
    }
    assert_int_equal(commits_scan_limit(&c), COMMITS_SCAN_MAX / 2);
}

UNIT_MAIN(cmocka_unit_test(rows_of_git_are_read),
          cmocka_unit_test(a_row_that_git_does_not_print_is_refused),
          cmocka_unit_test(objects_of_earlier_commits_are_added_and_known_ones_are_not),
          cmocka_unit_test(sizes_are_those_that_git_prints_and_directories_go),
          cmocka_unit_test(sizes_that_are_cut_short_are_refused),
          cmocka_unit_test(only_keys_of_earlier_commits_are_kept),
          cmocka_unit_test(contents_that_are_cut_short_are_refused),
          cmocka_unit_test(many_large_files_lower_the_limit))
