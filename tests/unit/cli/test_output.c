#include "tests/unit/unit.h"

#include <jansson.h>
#include <string.h>

#include "base/defer.h"
#include "cli/console/output.h"

#define LONG "dddddddddddddddddddddddddddddddddddddddddddddddddd"

static const char reviews[] =
    "{\"changeset\":\"c-1\",\"files\":[{\"path\":\"a\",\"diff\":\"" LONG LONG "\"}]}\n"
    "note\n"
    "{\"changeset\":\"c-2\",\"log\":\"" LONG "\",\"diff\":\"" LONG "\",\"files\":[],"
    "\"database\":{\"diff\":\"" LONG LONG "\"}}\n";

static struct buf text_of(const char *text) {
    return (struct buf){.data = (char *)text, .len = strlen(text)};
}

static void reviews_that_fit_stay_as_they_are(void **state) {
    (void)state;
    const struct buf all = text_of(reviews);
    struct buf out DEFER(buf_done) = BUF(4096);
    struct err err;
    assert_int_equal(output_fit_reviews(&all, all.len, &out, &err), 0);
    assert_string_equal(out.data, reviews);
}

static void the_last_review_loses_its_diffs_first_and_says_so(void **state) {
    (void)state;
    const struct buf all = text_of(reviews);
    struct buf out DEFER(buf_done) = BUF(4096);
    struct err err;
    assert_int_equal(output_fit_reviews(&all, 370, &out, &err), 0);
    assert_true(out.len <= 370);
    const char *first = strchr(out.data, '\n') + 1, *second = strchr(first, '\n') + 1;
    assert_true(strncmp(out.data, reviews, (size_t)(second - out.data)) == 0);
    json_t *last DEFER(json_decrefp) = json_loads(second, 0, NULL);
    const json_t *database = json_object_get(last, "database");
    assert_true(last && json_is_true(json_object_get(last, "diff_left_out")));
    assert_true(!json_object_get(last, "diff") && !json_object_get(last, "log"));
    assert_true(!json_object_get(database, "diff") && json_object_get(database, "error"));
}

static void every_line_is_whole_when_all_reviews_lose_their_diffs(void **state) {
    (void)state;
    const struct buf all = text_of(reviews);
    struct buf out DEFER(buf_done) = BUF(4096);
    struct err err;
    assert_int_equal(output_fit_reviews(&all, 280, &out, &err), 0);
    json_t *first DEFER(json_decrefp) =
        json_loadb(out.data, (size_t)(strchr(out.data, '\n') - out.data), 0, NULL);
    const json_t *file = json_array_get(json_object_get(first, "files"), 0);
    assert_true(file && json_is_true(json_object_get(file, "diff_left_out")));
    assert_string_equal(json_string_value(json_object_get(file, "path")), "a");
}

static void a_list_of_files_that_does_not_fit_is_an_error(void **state) {
    (void)state;
    const struct buf all = text_of(reviews);
    struct buf out DEFER(buf_done) = BUF(4096);
    struct err err;
    assert_int_equal(output_fit_reviews(&all, 100, &out, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT);
}

static void of_a_long_text_the_end_stays_in_whole_lines(void **state) {
    (void)state;
    char text[2000];
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = i % 10 == 9 ? '\n' : (char)('0' + i / 10 % 10);
    const struct buf all = {.data = text, .len = sizeof(text)};
    struct buf out DEFER(buf_done) = BUF(4096);
    struct err err;
    assert_int_equal(output_fit_text(&all, sizeof(text), &out, &err), 0);
    assert_int_equal(out.len, sizeof(text));
    buf_drop(&out, out.len);
    assert_int_equal(output_fit_text(&all, 500, &out, &err), 0);
    assert_true(out.len <= 500 && out.len > 480);
    const char *rest = strchr(out.data, '\n') + 1;
    size_t n = out.len - (size_t)(rest - out.data);
    assert_true(n % 10 == 0 && memcmp(rest, text + sizeof(text) - n, n) == 0);
}

UNIT_MAIN(cmocka_unit_test(reviews_that_fit_stay_as_they_are),
          cmocka_unit_test(the_last_review_loses_its_diffs_first_and_says_so),
          cmocka_unit_test(every_line_is_whole_when_all_reviews_lose_their_diffs),
          cmocka_unit_test(a_list_of_files_that_does_not_fit_is_an_error),
          cmocka_unit_test(of_a_long_text_the_end_stays_in_whole_lines))
