#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include "review/bundle.h"

#define ONE "1111111111111111111111111111111111111111"
#define TWO "2222222222222222222222222222222222222222"

static bool parse(const char *text, struct bundle *ret) {
    return bundle_parse(text, strlen(text), ret);
}

static void refs_and_the_start_of_the_pack_are_found(void **state) {
    struct bundle b;
    char hash[BUNDLE_HASH];
    (void)state;
    assert_true(parse("# v3 git bundle\n@object-format=sha1\n-" ONE " old\n" ONE " HEAD\n" TWO
                      " refs/x\n\nPACK\n\nmore",
                      &b));
    assert_int_equal(b.pack_size, strlen("PACK\n\nmore"));
    assert_memory_equal(b.pack, "PACK", 4);
    assert_true(bundle_find(&b, "HEAD", hash));
    assert_string_equal(hash, ONE);
    assert_true(bundle_find(&b, "refs/x", hash));
    assert_string_equal(hash, TWO);
}

static void only_a_ref_of_the_same_name_is_found(void **state) {
    struct bundle b;
    char hash[BUNDLE_HASH];
    (void)state;
    assert_true(parse("# v2 git bundle\n-" ONE " HEAD\n" ONE " HEAD2\n" ONE " HEA\n" ONE
                      "1 HEAD\n1 HEAD\n\n" ONE " HEAD\n",
                      &b));
    assert_false(bundle_find(&b, "HEAD", hash));
}

static void other_bytes_are_not_a_bundle(void **state) {
    struct bundle b;
    (void)state;
    assert_false(parse("", &b));
    assert_false(parse("# v4 git bundle\n\n", &b));
    assert_false(parse("# v2 git bundle\n", &b));
    assert_false(parse("# v2 git bundle\n" ONE " HEAD\n", &b));
    assert_true(parse("# v2 git bundle\n\n", &b));
    assert_int_equal(b.pack_size, 0);
}

UNIT_MAIN(cmocka_unit_test(refs_and_the_start_of_the_pack_are_found),
          cmocka_unit_test(only_a_ref_of_the_same_name_is_found),
          cmocka_unit_test(other_bytes_are_not_a_bundle))
