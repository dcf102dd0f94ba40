/* Secrets can be used but not shown. */
#include "tests/unit/unit.h"

#include "base/defer.h"
#include "base/secret.h"

static void a_secret_is_revealed_only_where_it_is_asked_for(void **state) {
    (void)state;
    struct secret *s DEFER(secret_freep) = secret_new("sk-123", 6);
    struct buf b DEFER(secret_wipe) = BUF(64);
    assert_non_null(s);
    assert_true(secret_reveal(s, &b));
    assert_string_equal(b.data, "sk-123");
    assert_true(secret_is_in(s, "x sk-123 y", 10));
    assert_false(secret_is_in(s, "sk-12", 5));
}

static void what_could_break_a_header_is_no_secret(void **state) {
    (void)state;
    assert_null(secret_new("", 0));
    assert_null(secret_new("a\nb", 3));
    assert_null(secret_new("a\0b", 3));
    char *large = test_malloc(SECRET_MAX + 1);
    memset(large, 'x', SECRET_MAX + 1);
    assert_null(secret_new(large, SECRET_MAX + 1));
    test_free(large);
}

static void a_secret_comes_from_the_environment_and_copies_are_equal(void **state) {
    (void)state;
    setenv("SOME_KEY", "k1", 1);
    struct secret *s DEFER(secret_freep) = secret_env("SOME_KEY");
    struct secret *copy DEFER(secret_freep) = secret_copy(s);
    assert_true(secret_is_in(copy, "k1", 2));
    unsetenv("SOME_KEY");
    assert_null(secret_env("SOME_KEY"));
    assert_null(secret_copy(NULL));
}

UNIT_MAIN(cmocka_unit_test(a_secret_is_revealed_only_where_it_is_asked_for),
          cmocka_unit_test(what_could_break_a_header_is_no_secret),
          cmocka_unit_test(a_secret_comes_from_the_environment_and_copies_are_equal))
