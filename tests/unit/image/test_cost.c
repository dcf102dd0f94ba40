#include "tests/unit/unit.h"

#include <sys/stat.h>

#include "image/cost.h"

static void contents_take_whole_blocks(void **state) {
    (void)state;
    assert_int_equal(cost_entry(S_IFREG | 0644, 0, 0), 512);
    assert_int_equal(cost_entry(S_IFREG | 0644, 1, 0), 512 + 4096);
    assert_int_equal(cost_entry(S_IFREG | 0644, 4096, 0), 512 + 4096);
    assert_int_equal(cost_entry(S_IFREG | 0644, 4097, 0), 512 + 8192);
}

static void everything_else_takes_something_too(void **state) {
    (void)state;
    assert_int_equal(cost_entry(S_IFDIR | 0755, 0, 0), 512 + 4096);
    assert_int_equal(cost_entry(S_IFLNK, 0, 59), 512);
    assert_int_equal(cost_entry(S_IFLNK, 0, 60), 512 + 4096);
    assert_int_equal(cost_entry(S_IFIFO, 0, 0), 512);
    assert_int_equal(cost_attributes(64), 0);
    assert_int_equal(cost_attributes(65), 4096);
    assert_int_equal(cost_attributes(5000), 8192);
}

/* A sum of a few of them does not overflow, whatever an archive says. */
static void sizes_that_no_disk_has_stay_large(void **state) {
    (void)state;
    assert_true(cost_entry(S_IFREG, UINT64_MAX, 0) >= UINT64_MAX / 2);
    assert_true(cost_entry(S_IFREG, UINT64_MAX - 4095, 0) >= UINT64_MAX / 2);
}

static void only_a_piece_of_zeros_is_a_hole(void **state) {
    (void)state;
    assert_true(cost_is_hole("\0\0\0", 3));
    assert_true(cost_is_hole("", 1));
    assert_false(cost_is_hole("\0\0x", 3));
    assert_false(cost_is_hole("x\0\0", 3));
    assert_false(cost_is_hole("", 0));
}

UNIT_MAIN(cmocka_unit_test(contents_take_whole_blocks),
          cmocka_unit_test(everything_else_takes_something_too),
          cmocka_unit_test(sizes_that_no_disk_has_stay_large),
          cmocka_unit_test(only_a_piece_of_zeros_is_a_hole))
