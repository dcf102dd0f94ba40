#include "tests/unit/unit.h"

#include "wasm/num.h"

#include <math.h>

static void division_traps_on_zero_and_overflow(void **state) {
    (void)state;
    uint32_t r = 7;
    uint64_t q = 7;
    assert_ptr_equal(num_i32_div_s(1, 0, &r), num_trap_div_zero);
    assert_ptr_equal(num_i32_div_s(0x80000000u, 0xffffffffu, &r), num_trap_overflow);
    assert_ptr_equal(num_i64_div_s(1ull << 63, ~0ull, &q), num_trap_overflow);
    assert_ptr_equal(num_i64_rem_u(1, 0, &q), num_trap_div_zero);
    assert_int_equal(r, 7);
    assert_int_equal(q, 7);
    assert_string_equal(num_trap_div_zero, "integer divide by zero");
}

static void division_rounds_toward_zero(void **state) {
    (void)state;
    uint32_t r;
    uint64_t q;
    assert_null(num_i32_div_s((uint32_t)-7, 2, &r));
    assert_int_equal((int32_t)r, -3);
    assert_null(num_i32_rem_s((uint32_t)-7, 2, &r));
    assert_int_equal((int32_t)r, -1);
    assert_null(num_i32_rem_s(0x80000000u, 0xffffffffu, &r));
    assert_int_equal(r, 0);
    assert_null(num_i64_rem_s(1ull << 63, ~0ull, &q));
    assert_int_equal(q, 0);
    assert_null(num_i64_div_u(~0ull, 10, &q));
    assert_int_equal(q, 1844674407370955161ull);
}

static void shift_counts_wrap(void **state) {
    (void)state;
    assert_int_equal(num_i32_shl(1, 33), 2);
    assert_int_equal(num_i32_shr_s(0x80000000u, 63), 0xffffffffu);
    assert_int_equal(num_i32_rotl(0xabcd9876u, 1), 0x579b30edu);
    assert_int_equal(num_i32_rotl(0xabcd9876u, 0), 0xabcd9876u);
    assert_int_equal(num_i32_rotr(1, 32), 1);
    assert_int_equal(num_i64_rotr(1, 1), 1ull << 63);
    assert_int_equal(num_i64_shr_u(1ull << 63, 127), 1);
}

static void counting_is_defined_at_zero(void **state) {
    (void)state;
    assert_int_equal(num_i32_clz(0), 32);
    assert_int_equal(num_i32_ctz(0), 32);
    assert_int_equal(num_i64_clz(0), 64);
    assert_int_equal(num_i64_ctz(0), 64);
    assert_int_equal(num_i64_popcnt(~0ull), 64);
    assert_int_equal(num_i32_extend8_s(0x180), 0xffffff80u);
    assert_int_equal(num_i64_extend32_s(0x80000000u), 0xffffffff80000000ull);
}

/* Whatever NaN goes in, x86 and aarch64 would propagate different ones; we give one. */
static void arithmetic_gives_the_canonical_nan(void **state) {
    (void)state;
    const uint32_t nans[] = {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xffffffffu, 0x7fa00000u};
    for (size_t i = 0; i < sizeof nans / sizeof nans[0]; i++) {
        float x = num_f32_of_bits(nans[i]);
        assert_int_equal(num_f32_bits(num_f32_add(x, 1)), NUM_F32_NAN);
        assert_int_equal(num_f32_bits(num_f32_mul(1, x)), NUM_F32_NAN);
        assert_int_equal(num_f32_bits(num_f32_min(x, 1)), NUM_F32_NAN);
        assert_int_equal(num_f32_bits(num_f32_max(1, x)), NUM_F32_NAN);
        assert_int_equal(num_f32_bits(num_f32_floor(x)), NUM_F32_NAN);
        assert_int_equal(num_f32_bits(num_f32_nearest(x)), NUM_F32_NAN);
        assert_int_equal(num_f64_bits(num_f64_promote(x)), NUM_F64_NAN);
    }
    assert_int_equal(num_f64_bits(num_f64_sub(INFINITY, INFINITY)), NUM_F64_NAN);
    assert_int_equal(num_f64_bits(num_f64_div(0, 0)), NUM_F64_NAN);
    assert_int_equal(num_f64_bits(num_f64_sqrt(-1)), NUM_F64_NAN);
    assert_int_equal(num_f32_bits(num_f32_demote(num_f64_of_bits(~0ull))), NUM_F32_NAN);
}

static void sign_operations_keep_nan_bits(void **state) {
    (void)state;
    assert_int_equal(num_f32_neg_bits(0x7f800001u), 0xff800001u);
    assert_int_equal(num_f64_abs_bits(0xfff0000000000001ull), 0x7ff0000000000001ull);
    assert_int_equal(num_f64_copysign_bits(0x7ff4000000000000ull, 1ull << 63),
                     0xfff4000000000000ull);
}

static void zeros_are_ordered_and_rounding_keeps_their_sign(void **state) {
    (void)state;
    assert_int_equal(num_f32_bits(num_f32_min(0.0f, -0.0f)), 0x80000000u);
    assert_int_equal(num_f32_bits(num_f32_max(-0.0f, 0.0f)), 0);
    assert_int_equal(num_f64_bits(num_f64_min(-0.0, 0.0)), 1ull << 63);
    assert_int_equal(num_f64_bits(num_f64_nearest(-0.5)), 1ull << 63);
    assert_int_equal(num_f64_bits(num_f64_ceil(-0.9)), 1ull << 63);
    assert_true(num_f64_nearest(2.5) == 2.0);
    assert_true(num_f64_nearest(3.5) == 4.0);
    assert_true(num_f32_nearest(-1.5f) == -2.0f);
    assert_true(num_f64_trunc(-1.9) == -1.0);
    assert_true(num_f64_sqrt(2.0) == 0x1.6a09e667f3bcdp+0);
}

static void truncation_traps_exactly_past_the_range(void **state) {
    (void)state;
    uint32_t r = 0;
    uint64_t q = 0;
    assert_null(num_i32_trunc_f64_s(2147483647.9, &r));
    assert_int_equal(r, INT32_MAX);
    assert_null(num_i32_trunc_f64_s(-2147483648.9, &r));
    assert_int_equal(r, 0x80000000u);
    assert_ptr_equal(num_i32_trunc_f64_s(-2147483649.0, &r), num_trap_overflow);
    assert_ptr_equal(num_i32_trunc_f64_s(2147483648.0, &r), num_trap_overflow);
    assert_null(num_i32_trunc_f32_s(-2147483648.0f, &r));
    assert_ptr_equal(num_i32_trunc_f32_s(2147483648.0f, &r), num_trap_overflow);
    assert_null(num_i32_trunc_f32_u(-0.99f, &r));
    assert_int_equal(r, 0);
    assert_ptr_equal(num_i32_trunc_f32_u(-1.0f, &r), num_trap_overflow);
    assert_null(num_i64_trunc_f64_u(0x1.fffffffffffffp63, &q));
    assert_int_equal(q, 0xfffffffffffff800ull);
    assert_null(num_i64_trunc_f64_s(-0x1p63, &q));
    assert_int_equal(q, 1ull << 63);
    assert_ptr_equal(num_i64_trunc_f64_s(0x1p63, &q), num_trap_overflow);
    assert_ptr_equal(num_i64_trunc_f32_u(INFINITY, &q), num_trap_overflow);
    assert_ptr_equal(num_i64_trunc_f32_s(NAN, &q), num_trap_conversion);
}

static void saturation_has_no_trap(void **state) {
    (void)state;
    assert_int_equal(num_sat_i32_trunc_f64_s(NAN), 0);
    assert_int_equal(num_sat_i32_trunc_f64_s(-1e300), 0x80000000u);
    assert_int_equal(num_sat_i32_trunc_f64_s(1e300), INT32_MAX);
    assert_int_equal(num_sat_i32_trunc_f32_u(-5), 0);
    assert_int_equal(num_sat_i32_trunc_f32_u(INFINITY), UINT32_MAX);
    assert_true(num_sat_i64_trunc_f64_u(0x1p64) == UINT64_MAX);
    assert_true(num_sat_i64_trunc_f32_s(-INFINITY) == 1ull << 63);
}

UNIT_MAIN(cmocka_unit_test(division_traps_on_zero_and_overflow),
          cmocka_unit_test(division_rounds_toward_zero), cmocka_unit_test(shift_counts_wrap),
          cmocka_unit_test(counting_is_defined_at_zero),
          cmocka_unit_test(arithmetic_gives_the_canonical_nan),
          cmocka_unit_test(sign_operations_keep_nan_bits),
          cmocka_unit_test(zeros_are_ordered_and_rounding_keeps_their_sign),
          cmocka_unit_test(truncation_traps_exactly_past_the_range),
          cmocka_unit_test(saturation_has_no_trap))
