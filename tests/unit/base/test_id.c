#include "tests/unit/unit.h"

#include <string.h>

#include "base/id.h"

static void a_new_id_is_valid_and_of_its_kind(void **state) {
    (void)state;
    for (int i = 0; i < 1000; i++) {
        struct id id = id_new('m');
        assert_int_equal(strlen(id.text), ID_SIZE - 1);
        assert_true(id_valid(id.text, strlen(id.text), 'm'));
        assert_false(id_valid(id.text, strlen(id.text), 'x'));
    }
}

static void ids_differ(void **state) {
    (void)state;
    struct id a = id_new('m'), b = id_new('m');
    assert_string_not_equal(a.text, b.text);
}

static void what_is_no_id_is_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"",
                                      "m-",
                                      "m-aaaaaaaaaaa",
                                      "m-aaaaaaaaaaaaa",
                                      "m-AAAAAAAAAAAA",
                                      "m-aaaaaaaaaaa1",
                                      "m_aaaaaaaaaaaa",
                                      "m-aaaaa/aaaaaa",
                                      "m-aaaaaaaaaa..",
                                      "m-aaaaaaaaaaa\n"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_false(id_valid(bad[i], strlen(bad[i]), 'm'));
    assert_false(id_valid("m-aaaaa\0aaaaaa", 14, 'm'));
}

static void a_label_reads_as_its_id(void **state) {
    (void)state;
    for (int i = 0; i < 100; i++) {
        struct id id = id_new('m');
        char label[ID_LABEL_SIZE], back[ID_SIZE];
        id_to_label(id.text, label);
        assert_int_equal(strlen(label), ID_LABEL_SIZE - 1);
        assert_null(strchr(label, '-'));
        assert_true(id_from_label(label, strlen(label), 'm', back));
        assert_string_equal(back, id.text);
        assert_false(id_from_label(label, strlen(label), 'x', back));
    }
}

static void a_malformed_label_is_refused(void **state) {
    static const char *const bad[] = {"",
                                      "m",
                                      "m-aaaaaaaaaaa",
                                      "m-aaaaaaaaaaaa",
                                      "maaaaaaaaaaa",
                                      "maaaaaaaaaaaaa",
                                      "Maaaaaaaaaaaa",
                                      "mAaaaaaaaaaaa",
                                      "maaaaaaaaaaa1",
                                      "maaaaaa.aaaaa"};
    char ret[ID_SIZE] = "untouched";
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_false(id_from_label(bad[i], strlen(bad[i]), 'm', ret));
    assert_false(id_from_label("maaaaaa\0aaaaa", 13, 'm', ret));
    assert_string_equal(ret, "untouched");
}

UNIT_MAIN(cmocka_unit_test(a_new_id_is_valid_and_of_its_kind), cmocka_unit_test(ids_differ),
          cmocka_unit_test(what_is_no_id_is_refused), cmocka_unit_test(a_label_reads_as_its_id),
          cmocka_unit_test(a_malformed_label_is_refused))
