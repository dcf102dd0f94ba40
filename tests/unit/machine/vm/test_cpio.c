#include "tests/unit/unit.h"

#include "base/defer.h"
#include "machine/vm/cpio.h"

static void archive_has_the_form_that_the_kernel_reads(void **state) {
    (void)state;
    struct buf b DEFER(buf_done) = BUF(4096);
    assert_true(cpio_add_dir(&b, "d"));
    assert_true(cpio_add_file(&b, "d/file", 0640, "hello", 5));
    assert_true(cpio_end(&b));
    static const char want[] =
        "07070100000000000041ed00000000000000000000000100000000000000000000000000000000"
        "00000000000000000000000200000000d\0"
        "07070100000000000081a000000000000000000000000100000000000000050000000000000000"
        "00000000000000000000000700000000d/file\0\0\0\0hello\0\0\0"
        "07070100000000000000000000000000000000000000010000000000000000000000000000000"
        "000000000000000000000000b00000000TRAILER!!!\0\0\0";
    assert_int_equal(b.len, sizeof(want));
    assert_memory_equal(b.data, want, sizeof(want));
}

static void each_part_begins_at_a_multiple_of_four(void **state) {
    (void)state;
    for (size_t n = 0; n < 9; n++) {
        struct buf b DEFER(buf_done) = BUF(4096);
        assert_true(cpio_add_file(&b, &"name-of-it"[n], 0600, "12345678", n));
        assert_int_equal(b.len % 4, 0);
    }
}

static void full_buffer_is_an_error(void **state) {
    (void)state;
    for (size_t max = 0; max < 128; max++) {
        struct buf b DEFER(buf_done) = BUF(max);
        assert_false(cpio_add_file(&b, "n", 0600, "0123456789012345678901234567890", 31));
    }
}

UNIT_MAIN(cmocka_unit_test(archive_has_the_form_that_the_kernel_reads),
          cmocka_unit_test(each_part_begins_at_a_multiple_of_four),
          cmocka_unit_test(full_buffer_is_an_error))
