#include "tests/unit/unit.h"
#include <sys/resource.h>

#include <errno.h>

#include "base/err.h"

static void each_level_adds_what_it_was_doing(void **state) {
    (void)state;
    struct err err;
    errno = ENOSPC;
    assert_int_equal(err_sys(&err, "mount overlay"), -1);
    assert_int_equal(err_wrap(&err, "start machine '%s'", "m1"), -1);
    assert_string_equal(err.text, "start machine 'm1': mount overlay: No space left on device");
    assert_int_equal(err.code, ERR_LIMIT);
}

static void every_code_has_a_name(void **state) {
    (void)state;
    for (enum err_code c = ERR_INTERNAL + 1; c <= ERR_TIMEOUT; c++)
        assert_string_not_equal(err_code_name(c), "internal");
    assert_string_equal(err_code_name((enum err_code)999), "internal");
}

static void a_remedy_keeps_the_text_and_a_new_error_drops_it(void **state) {
    (void)state;
    struct err err;
    err_set(&err, ERR_UNSUPPORTED, "no overlay");
    err_remedy(&err, "modprobe overlay");
    assert_string_equal(err.text, "no overlay");
    assert_string_equal(err.remedy, "modprobe overlay");
    err_set(&err, ERR_INVALID, "other");
    assert_string_equal(err.remedy, "");
}

static void a_long_remedy_ends_with_dots(void **state) {
    (void)state;
    struct err err;
    char big[1000], fits[sizeof(err.remedy)];
    for (size_t i = 0; i + 1 < sizeof(big); i += 2)
        memcpy(big + i, "\xc3\xa9", 2);
    big[998] = '\0';
    memset(fits, 'x', sizeof(fits) - 1);
    fits[sizeof(fits) - 1] = '\0';
    for (size_t shift = 0; shift < 2; shift++) {
        err_set(&err, ERR_LIMIT, "too much");
        err_remedy(&err, "%s%s", shift ? "x" : "", big);
        size_t n = strlen(err.remedy);
        assert_true(n < sizeof(err.remedy) && n > 3);
        assert_string_equal(err.remedy + n - 3, "...");
        assert_int_equal((n - 3 - shift) % 2, 0); /* no half of a character */
    }
    err_remedy(&err, "%s", fits);
    assert_string_equal(err.remedy, fits);
}

static void a_long_text_is_cut_not_overrun(void **state) {
    (void)state;
    struct err err;
    char big[1000];
    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    err_set(&err, ERR_INVALID, "%s", big);
    err_wrap(&err, "%s", big);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
}

static void a_limit_of_open_files_is_named(void **state) {
    (void)state;
    struct err err;
    struct rlimit files;
    char number[32];
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    snprintf(number, sizeof(number), "%llu files", (unsigned long long)files.rlim_cur);
    err_num(&err, -EMFILE, "open 'x'");
    assert_non_null(strstr(err.remedy, number));
    assert_non_null(strstr(err.remedy, "limit of open files"));
    err_num(&err, -ENFILE, "open 'x'");
    assert_non_null(strstr(err.remedy, "fs.file-max"));
    err_num(&err, -ENOENT, "open 'x'");
    assert_string_equal(err.remedy, "");
}

UNIT_MAIN(cmocka_unit_test(a_limit_of_open_files_is_named),
          cmocka_unit_test(each_level_adds_what_it_was_doing),
          cmocka_unit_test(every_code_has_a_name),
          cmocka_unit_test(a_remedy_keeps_the_text_and_a_new_error_drops_it),
          cmocka_unit_test(a_long_remedy_ends_with_dots),
          cmocka_unit_test(a_long_text_is_cut_not_overrun))
