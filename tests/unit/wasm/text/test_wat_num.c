#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wasm/text/wat_num.h"

static enum wat_num read_float(const char *text, unsigned bits, uint64_t *ret) {
    return wat_float(text, strlen(text), bits, ret);
}

static void assert_float(const char *text, unsigned bits, uint64_t wanted) {
    uint64_t got = 0;
    if (read_float(text, bits, &got) != WAT_NUM_OK || got != wanted)
        fail_msg("%s is 0x%llx, expected 0x%llx", text, (unsigned long long)got,
                 (unsigned long long)wanted);
}

static void integers_are_read_in_both_bases(void **state) {
    (void)state;
    static const struct {
        const char *text;
        unsigned bits;
        uint64_t value;
    } cases[] = {
        {"0", 32, 0},
        {"4_294_967_295", 32, 0xffffffff},
        {"-2147483648", 32, 0x80000000},
        {"-1", 32, 0xffffffff},
        {"+0x7f_ff", 32, 0x7fff},
        {"0xffffffffffffffff", 64, UINT64_MAX},
        {"-0x8000000000000000", 64, 1ull << 63},
        {"-128", 8, 0x80},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint64_t got;
        assert_int_equal(wat_int(cases[i].text, strlen(cases[i].text), cases[i].bits, &got),
                         WAT_NUM_OK);
        assert_true(got == cases[i].value);
    }
}

static void integers_out_of_range_or_shape_are_told_apart(void **state) {
    (void)state;
    static const struct {
        const char *text;
        unsigned bits;
        enum wat_num status;
    } cases[] = {
        {"4294967296", 32, WAT_NUM_RANGE},
        {"-2147483649", 32, WAT_NUM_RANGE},
        {"18446744073709551616", 64, WAT_NUM_RANGE},
        {"0x1_0000_0000_0000_0000_0", 64, WAT_NUM_RANGE},
        {"", 32, WAT_NUM_SYNTAX},
        {"-", 32, WAT_NUM_SYNTAX},
        {"0x", 32, WAT_NUM_SYNTAX},
        {"1__0", 32, WAT_NUM_SYNTAX},
        {"_1", 32, WAT_NUM_SYNTAX},
        {"1_", 32, WAT_NUM_SYNTAX},
        {"0x_1", 32, WAT_NUM_SYNTAX},
        {"1a", 32, WAT_NUM_SYNTAX},
        {"--1", 32, WAT_NUM_SYNTAX},
    };
    uint64_t got;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_int_equal(wat_int(cases[i].text, strlen(cases[i].text), cases[i].bits, &got),
                         cases[i].status);
}

static void floats_are_rounded_once_to_nearest_even(void **state) {
    (void)state;
    assert_float("1", 64, 0x3ff0000000000000);
    assert_float("0.1", 64, 0x3fb999999999999a);
    assert_float("0.1", 32, 0x3dcccccd);
    assert_float("-0.0", 64, 1ull << 63);
    assert_float("1e23", 64, 0x44b52d02c7e14af6);
    assert_float("9007199254740993", 64, 0x4340000000000000);
    assert_float("9007199254740993.0000000000000000000000001", 64, 0x4340000000000001);
    assert_float("1.7976931348623157e308", 64, 0x7fefffffffffffff);
    assert_float("5e-324", 64, 1);
    assert_float("2.4703282292062327e-324", 64, 0);
    assert_float("2.4703282292062328e-324", 64, 1);
    assert_float("2.2250738585072011e-308", 64, 0x000fffffffffffff);
    assert_float("340282356779733642748073463979561713663", 32, 0x7f7fffff);
    assert_float("1e-1000000000", 64, 0);
    assert_float("16777217", 32, 0x4b800000);
    /* Rounding through f64 first would give 0x3f800000. */
    assert_float("1.00000005960464477540", 32, 0x3f800001);
}

static void hexadecimal_floats_are_exact(void **state) {
    (void)state;
    assert_float("0x1p0", 64, 0x3ff0000000000000);
    assert_float("0x1.8", 32, 0x3fc00000);
    assert_float("0x1.fffffep+127", 32, 0x7f7fffff);
    assert_float("0x1p-149", 32, 1);
    assert_float("0x1p-150", 32, 0);
    assert_float("0x1.000000000000000001p-150", 32, 1);
    assert_float("0x1.000001", 32, 0x3f800000);
    assert_float("0x1.000003", 32, 0x3f800002);
    assert_float("-0x0.0000000000001p-1022", 64, (1ull << 63) + 1);
    assert_float("0x123456789abcdef0123456789p-100", 64, 0x3fb23456789abcdf);
}

static void malformed_floats_are_refused(void **state) {
    (void)state;
    static const char *const cases[] = {"",     ".5",      "1e",     "1e+",      "0x",
                                        "0x.8", "0x1p",    "1.e_1",  "1._5",     "_1.0",
                                        "1_.0", "nan:1",   "nan:0x", "nan:0x0_", "infinity",
                                        "1.0f", "0x1.p1_", "+",      "1e5.0"};
    uint64_t got;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        if (read_float(cases[i], 64, &got) != WAT_NUM_SYNTAX)
            fail_msg("%s was accepted", cases[i]);
}

static void floats_out_of_range_are_refused(void **state) {
    (void)state;
    uint64_t got;
    assert_int_equal(read_float("1e309", 64, &got), WAT_NUM_RANGE);
    assert_int_equal(read_float("1e1000000000", 64, &got), WAT_NUM_RANGE);
    assert_int_equal(read_float("340282356779733661637539395458142568448", 32, &got),
                     WAT_NUM_RANGE);
    assert_int_equal(read_float("0x1p1024", 64, &got), WAT_NUM_RANGE);
    assert_int_equal(read_float("nan:0x0", 64, &got), WAT_NUM_RANGE);
    assert_int_equal(read_float("nan:0x800000", 32, &got), WAT_NUM_RANGE);
}

static void nans_keep_their_payload(void **state) {
    (void)state;
    assert_float("nan", 32, 0x7fc00000);
    assert_float("-nan", 64, 0xfff8000000000000);
    assert_float("nan:0x1", 32, 0x7f800001);
    assert_float("-nan:0xf_ffff_ffff_ffff", 64, UINT64_MAX);
    assert_float("inf", 64, 0x7ff0000000000000);
    assert_float("-inf", 32, 0xff800000);
}

/* A fixed walk over bit patterns of every size and sign. */
static void printed_floats_read_back_to_the_same_bits(void **state) {
    (void)state;
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        unsigned bits = i % 2 ? 32 : 64;
        uint64_t value = bits == 32 ? (uint32_t)x : x, back;
        char text[WAT_NUM_TEXT];
        wat_print_float(value, bits, text);
        assert_int_equal(read_float(text, bits, &back), WAT_NUM_OK);
        assert_true(back == value);
    }
}

/* glibc's strtod rounds right too: two implementations that agree are hardly both wrong. */
static void decimal_floats_agree_with_strtod(void **state) {
    (void)state;
    uint64_t x = 1181783497276652981u;
    for (int i = 0; i < 5000; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        char text[64];
        snprintf(text, sizeof(text), "%llu.%llue%d", (unsigned long long)(x >> (x & 63)),
                 (unsigned long long)(x * 31 % 1000000007), (int)(x % 660) - 340);
        double d = strtod(text, NULL);
        float f = strtof(text, NULL);
        uint64_t wanted, got;
        uint32_t narrow;
        memcpy(&wanted, &d, sizeof(d));
        memcpy(&narrow, &f, sizeof(f));
        if (d <= 1.7976931348623157e308)
            assert_float(text, 64, wanted);
        else
            assert_int_equal(read_float(text, 64, &got), WAT_NUM_RANGE);
        if (f <= 3.4028235e38f)
            assert_float(text, 32, narrow);
    }
}

UNIT_MAIN(cmocka_unit_test(integers_are_read_in_both_bases),
          cmocka_unit_test(integers_out_of_range_or_shape_are_told_apart),
          cmocka_unit_test(floats_are_rounded_once_to_nearest_even),
          cmocka_unit_test(hexadecimal_floats_are_exact),
          cmocka_unit_test(malformed_floats_are_refused),
          cmocka_unit_test(floats_out_of_range_are_refused),
          cmocka_unit_test(nans_keep_their_payload),
          cmocka_unit_test(printed_floats_read_back_to_the_same_bits),
          cmocka_unit_test(decimal_floats_agree_with_strtod))
