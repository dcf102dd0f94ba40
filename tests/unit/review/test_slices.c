#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/id.h"
#include "review/slices.h"

static void each_kind_that_comes_back_is_a_slice(void **state) {
    (void)state;
    struct slices *s DEFER_FREE = xnew(struct slices);
    slices_add(s, "dir", "cow", "/work", "/home/ann/work");
    slices_add(s, "repo", "clone", "/src", "/home/ann/src");
    slices_add(s, "sqlite", "copy", "/data/a.db", "/home/ann/data/a.db");
    slices_add(s, "postgres", "own", "db", "shop on db:5432");
    static const struct {
        enum slice_kind kind;
        const char *at, *home;
    } expected[] = {{SLICE_DIR, "/work", "/home/ann/work"},
                    {SLICE_REPO, "/src", "/home/ann/src"},
                    {SLICE_DATABASE, "/data/a.db", "/home/ann/data"},
                    {SLICE_SERVER, "db", ""}};
    assert_int_equal(s->count, 4);
    for (size_t i = 0; i < s->count; i++) {
        assert_int_equal(s->list[i].kind, expected[i].kind);
        assert_string_equal(s->list[i].at, expected[i].at);
        assert_string_equal(s->list[i].home, expected[i].home);
    }
}

static void other_grants_are_left_out(void **state) {
    (void)state;
    struct slices *s DEFER_FREE = xnew(struct slices);
    slices_add(s, "dir", "ro", "/work", "/home/ann/work");
    slices_add(s, "dir", "rw", "/work", "/home/ann/work");
    slices_add(s, "secret", "header", "TOKEN", "api.example.com");
    slices_add(s, "", NULL, "", "");
    assert_int_equal(s->count, 0);
}

static void a_change_set_names_no_mode(void **state) {
    (void)state;
    struct slices *s DEFER_FREE = xnew(struct slices);
    slices_add(s, "dir", NULL, "/work", "/home/ann/work");
    assert_int_equal(s->count, 1);
    assert_int_equal(s->list[0].kind, SLICE_DIR);
}

static void a_database_in_the_root_goes_to_the_root(void **state) {
    (void)state;
    struct slices *s DEFER_FREE = xnew(struct slices);
    slices_add(s, "sqlite", NULL, "/a.db", "/a.db");
    assert_string_equal(s->list[0].home, "/");
}

static void no_more_than_the_maximum_are_kept(void **state) {
    (void)state;
    struct slices *s DEFER_FREE = xnew(struct slices);
    for (int i = 0; i < SLICES_MAX + 3; i++)
        slices_add(s, "repo", NULL, "/src", "/home/ann/src");
    assert_int_equal(s->count, SLICES_MAX);
}

static void the_word_names_the_machine_and_the_path(void **state) {
    (void)state;
    struct slice dir = {.kind = SLICE_DIR, .at = "/work"}, repo = {.kind = SLICE_REPO, .at = "/s"};
    char word[SLICE_WORD];
    struct id set = id_new('c');
    slice_word(&dir, "m1", word);
    assert_string_equal(word, "m1:/work");
    slice_word(&repo, "m1", word);
    assert_string_equal(word, "m1");
    slice_word(&dir, set.text, word);
    assert_string_equal(word, set.text);
}

UNIT_MAIN(cmocka_unit_test(each_kind_that_comes_back_is_a_slice),
          cmocka_unit_test(other_grants_are_left_out), cmocka_unit_test(a_change_set_names_no_mode),
          cmocka_unit_test(a_database_in_the_root_goes_to_the_root),
          cmocka_unit_test(no_more_than_the_maximum_are_kept),
          cmocka_unit_test(the_word_names_the_machine_and_the_path))
