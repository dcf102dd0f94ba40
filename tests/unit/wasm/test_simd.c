#include "tests/unit/unit.h"

#include "wasm/num.h"
#include "wasm/opcode.h"
#include "wasm/simd.h"

#include <string.h>

#define V8(...) ((union v128){.u8 = {__VA_ARGS__}})
#define V16(...) ((union v128){.u16 = {__VA_ARGS__}})
#define V32(...) ((union v128){.u32 = {__VA_ARGS__}})
#define V64(...) ((union v128){.u64 = {__VA_ARGS__}})
#define F32(...) ((union v128){.f32 = {__VA_ARGS__}})
#define F64(...) ((union v128){.f64 = {__VA_ARGS__}})

static const struct simd_op *named(const char *name, enum simd_shape shape) {
    for (uint32_t code = 0; code < SIMD_OPS; code++) {
        const struct simd_op *op = simd_op(code);
        if (op && strcmp(op->name, name) == 0) {
            assert_int_equal(op->shape, shape);
            return op;
        }
    }
    fail_msg("no instruction '%s'", name);
    return NULL;
}

static void expect(const char *name, union v128 got, union v128 want) {
    if (memcmp(&got, &want, sizeof got) != 0)
        fail_msg("%s: got %016llx %016llx, want %016llx %016llx", name,
                 (unsigned long long)got.u64[1], (unsigned long long)got.u64[0],
                 (unsigned long long)want.u64[1], (unsigned long long)want.u64[0]);
}

static void unary(const char *name, union v128 a, union v128 want) {
    expect(name, named(name, SIMD_UNARY)->unary(a), want);
}

static void binary(const char *name, union v128 a, union v128 b, union v128 want) {
    expect(name, named(name, SIMD_BINARY)->binary(a, b), want);
}

static void ternary(const char *name, union v128 a, union v128 b, union v128 c, union v128 want) {
    expect(name, named(name, SIMD_TERNARY)->ternary(a, b, c), want);
}

static void shift(const char *name, union v128 a, uint32_t n, union v128 want) {
    expect(name, named(name, SIMD_SHIFT)->shift(a, n), want);
}

static uint32_t tested(const char *name, union v128 a) {
    return named(name, SIMD_TEST)->test(a);
}

static void every_row_has_the_function_of_its_shape(void **state) {
    (void)state;
    unsigned rows = 0;
    for (uint32_t code = 0; code < SIMD_OPS; code++) {
        const struct simd_op *op = simd_op(code);
        if (!op)
            continue;
        rows++;
        assert_non_null(op->name);
        assert_true(op->unary || op->shape == SIMD_CONST || op->shape == SIMD_SHUFFLE);
    }
    assert_int_equal(rows, 236 + 20);
    assert_null(simd_op(0x9a));
    assert_null(simd_op(SIMD_OPS));
    assert_null(simd_op(UINT32_MAX));
}

static void rows_agree_with_the_instruction_table(void **state) {
    (void)state;
    for (uint32_t code = 0; code < SIMD_OPS; code++) {
        const struct simd_op *op = simd_op(code);
        enum wasm_op found = wasm_op_find(0xfd, code);
        assert_int_equal(op != NULL, found != OP_COUNT);
        if (!op)
            continue;
        assert_string_equal(op->name, wasm_ops[found].text);
        if (op->width)
            assert_int_equal(op->width, 1 << wasm_ops[found].align);
    }
}

static void integer_lanes_wrap_and_saturate(void **state) {
    (void)state;
    binary("i8x16.add", V8(0xff, 0x7f), V8(1, 1), V8(0, 0x80));
    binary("i8x16.add_sat_s", V8(0x7f, 0x80, 0xff), V8(1, 0xff, 1), V8(0x7f, 0x80, 0));
    binary("i8x16.add_sat_u", V8(0xff, 0xf0), V8(1, 0x0f), V8(0xff, 0xff));
    binary("i8x16.sub_sat_u", V8(0, 5), V8(1, 3), V8(0, 2));
    binary("i16x8.sub_sat_s", V16(0x8000, 0x7fff), V16(1, 0xffff), V16(0x8000, 0x7fff));
    binary("i16x8.mul", V16(0xffff, 0x8000), V16(0xffff, 2), V16(1, 0));
    binary("i64x2.mul", V64(1ull << 63, 3), V64(3, 5), V64(1ull << 63, 15));
    binary("i8x16.avgr_u", V8(0xff, 0, 1), V8(0xff, 1, 1), V8(0xff, 1, 1));
    unary("i8x16.abs", V8(0x80, 0xff, 5), V8(0x80, 1, 5));
    unary("i64x2.abs", V64(1ull << 63, ~0ull), V64(1ull << 63, 1));
    unary("i32x4.neg", V32(1, 0x80000000u), V32(0xffffffffu, 0x80000000u));
    unary("i8x16.popcnt", V8(0xff, 0x81), V8(8, 2));
}

static void q15mulr_rounds_and_saturates_once(void **state) {
    (void)state;
    binary("i16x8.q15mulr_sat_s", V16(0x8000, 0x8000, 0x4000, 0xffff, 1),
           V16(0x8000, 0x7fff, 0x4000, 0x4000, 0x4000), V16(0x7fff, 0x8001, 0x2000, 0, 1));
    binary("i16x8.relaxed_q15mulr_s", V16(0x8000), V16(0x8000), V16(0x7fff));
}

static void narrowing_reads_signed_lanes(void **state) {
    (void)state;
    binary("i8x16.narrow_i16x8_u", V16(0xffff, 0x0100, 0x00ff), V16(0x8000, 0x7fff),
           V8(0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0xff));
    binary("i8x16.narrow_i16x8_s", V16(0xff00, 0x0080), V16(0xff80),
           V8(0x80, 0x7f, 0, 0, 0, 0, 0, 0, 0x80));
    binary("i16x8.narrow_i32x4_u", V32(0xffffffffu, 0x10000), V32(0x1234),
           V16(0, 0xffff, 0, 0, 0x1234));
    binary("i16x8.narrow_i32x4_s", V32(0x80000000u, 0x8000), V32(0x7fffffff),
           V16(0x8000, 0x7fff, 0, 0, 0x7fff));
}

static void widening_takes_the_named_half(void **state) {
    (void)state;
    unary("i16x8.extend_high_i8x16_s", V8(1, 1, 1, 1, 1, 1, 1, 1, 0x80), V16(0xff80));
    unary("i64x2.extend_low_i32x4_u", V32(0xffffffffu, 1, 2, 3), V64(0xffffffffu, 1));
    binary("i64x2.extmul_high_i32x4_s", V32(0, 0, 0x80000000u, 3),
           V32(0, 0, 0x80000000u, 0xffffffffu), V64(1ull << 62, (uint64_t)-3));
    binary("i32x4.extmul_low_i16x8_u", V16(0xffff), V16(0xffff), V32(0xfffe0001u));
    unary("i16x8.extadd_pairwise_i8x16_u", V8(0xff, 0xff, 1, 2), V16(0x1fe, 3));
    unary("i32x4.extadd_pairwise_i16x8_s", V16(0x8000, 0x8000, 0xffff, 1), V32(0xffff0000u, 0));
}

static void dot_products_wrap_as_i32(void **state) {
    (void)state;
    binary("i32x4.dot_i16x8_s", V16(0x8000, 0x8000, 2, 3), V16(0x8000, 0x8000, 5, 0xffff),
           V32(0x80000000u, 7));
    binary("i16x8.relaxed_dot_i8x16_i7x16_s", V8(0x80, 0x80, 0x80, 2), V8(0x80, 0x80, 0x7f, 3),
           V16(0x7fff, (uint16_t)(-128 * 127 + 6)));
    ternary("i32x4.relaxed_dot_i8x16_i7x16_add_s", V8(1, 2, 3, 4), V8(10, 20, 30, 0xff), V32(1000),
            V32(1000 + 10 + 40 + 90 - 4));
}

static void shifts_take_the_count_modulo_the_lane(void **state) {
    (void)state;
    shift("i8x16.shl", V8(0x81), 9, V8(2));
    shift("i8x16.shr_s", V8(0x80), 7, V8(0xff));
    shift("i16x8.shr_u", V16(0x8000), 31, V16(1));
    shift("i64x2.shr_s", V64(1ull << 63), 127, V64(~0ull));
    shift("i32x4.shl", V32(1), 32, V32(1));
}

static void tests_and_masks(void **state) {
    (void)state;
    assert_int_equal(tested("v128.any_true", V8(0)), 0);
    assert_int_equal(tested("v128.any_true", V64(0, 1ull << 63)), 1);
    assert_int_equal(tested("i16x8.all_true", V16(1, 1, 1, 1, 1, 1, 1, 0)), 0);
    assert_int_equal(tested("i64x2.all_true", V64(1, 1ull << 40)), 1);
    assert_int_equal(
        tested("i8x16.bitmask", V8(0x80, 0x7f, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80)),
        0x8005);
    assert_int_equal(tested("i64x2.bitmask", V64(0, 1ull << 63)), 2);
    binary("f32x4.ne", F32(1, 2), F32(1, 3), V32(0, ~0u));
    binary("i8x16.lt_u", V8(1, 0xff), V8(0xff, 1), V8(0xff, 0));
    binary("i8x16.lt_s", V8(1, 0xff), V8(0xff, 1), V8(0, 0xff));
    binary("i64x2.ge_s", V64(1, ~0ull), V64(1, 0), V64(~0ull, 0));
}

static void float_lanes_give_canonical_nans(void **state) {
    (void)state;
    union v128 nans = V32(0xffffffffu, 0x7f800001u, 0xffc00000u, 0x3f800000u);
    union v128 want = V32(NUM_F32_NAN, NUM_F32_NAN, NUM_F32_NAN, 0x40000000u);
    binary("f32x4.add", nans, F32(1, 1, 1, 1), want);
    binary("f32x4.max", F32(2, 2, 2, 2), nans, want);
    binary("f32x4.relaxed_max", F32(2, 2, 2, 2), nans, want);
    ternary("f32x4.relaxed_madd", nans, F32(1, 1, 1, 1), F32(1, 1, 1, 1), want);
    unary("f64x2.sqrt", F64(-1, 4), V64(NUM_F64_NAN, 0x4000000000000000ull));
    unary("f64x2.promote_low_f32x4", nans, V64(NUM_F64_NAN, NUM_F64_NAN));
    unary("f32x4.demote_f64x2_zero", V64(0xfff0000000000001ull, 0x3ff0000000000000ull),
          V32(NUM_F32_NAN, 0x3f800000u));
    binary("f64x2.min", F64(0.0, 1), F64(-0.0, 2), F64(-0.0, 1));
}

static void sign_and_choice_keep_nan_bits(void **state) {
    (void)state;
    unary("f32x4.neg", V32(0x7f800001u), V32(0xff800001u, 1u << 31, 1u << 31, 1u << 31));
    unary("f64x2.abs", V64(~0ull), V64(~0ull >> 1));
    binary("f32x4.pmin", V32(0xff800001u, 0), V32(0, 0x7fc00001u), V32(0xff800001u, 0));
    binary("f32x4.pmax", F32(0.0f, 1), F32(-0.0f, 2), F32(0.0f, 2));
}

/* Fused, 1 + 2^-23 squared minus its rounded square would leave 2^-46. */
static void relaxed_madd_rounds_twice(void **state) {
    (void)state;
    float e = 0x1.000002p0f;
    union v128 x = F32(e, e, e, e);
    float square = 0x1.000004p0f;
    ternary("f32x4.relaxed_madd", x, x, F32(-square, -square, -square, -square), V32(0));
    ternary("f32x4.relaxed_nmadd", x, x, F32(square, square, square, square), V32(0));
    double d = 0x1.0000000000001p0, dd = 0x1.0000000000002p0;
    ternary("f64x2.relaxed_madd", F64(d, d), F64(d, d), F64(-dd, -dd), V64(0));
}

static void conversions_saturate_and_zero_the_rest(void **state) {
    (void)state;
    unary("i32x4.trunc_sat_f32x4_s", V32(0x7fc00000u, 0xff800000u, 0x7f800000u, 0xc0200000u),
          V32(0, 0x80000000u, 0x7fffffffu, (uint32_t)-2));
    unary("i32x4.trunc_sat_f64x2_u_zero", F64(-1, 4294967296.0), V32(0, 0xffffffffu));
    unary("i32x4.relaxed_trunc_f64x2_s_zero", F64(-3e9, 7.9), V32(0x80000000u, 7));
    unary("f32x4.convert_i32x4_u", V32(0xffffffffu, 1), F32(4294967296.0f, 1));
    unary("f64x2.convert_low_i32x4_s", V32(0x80000000u, 7, 9, 9), F64(-2147483648.0, 7));
    unary("f64x2.nearest", F64(2.5, -0.5), F64(2, -0.0));
}

static void lanes_move_by_index(void **state) {
    (void)state;
    union v128 a = V8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    binary("i8x16.swizzle", a, V8(15, 16, 255, 3), V8(15, 0, 0, 3, 0, 0, 0, 0));
    binary("i8x16.relaxed_swizzle", a, V8(15, 16, 128, 3), V8(15, 0, 0, 3));
    const uint8_t pick[16] = {0, 31, 16, 15};
    expect("shuffle", simd_shuffle(a, V8(100, [15] = 200), pick), V8(0, 200, 100, 15));
    ternary("v128.bitselect", V8(0xff, 0x0f), V8(0, 0xf0), V8(0xf0, 0x55), V8(0xf0, 0xa5));
    ternary("i8x16.relaxed_laneselect", V8(0xff), V8(0), V8(0x80), V8(0x80));
    expect("splat", named("i8x16.splat", SIMD_SPLAT)->splat(0x1ff), V64(~0ull, ~0ull));
    expect("splat", named("f64x2.splat", SIMD_SPLAT)->splat(0x7ff4000000000000ull),
           V64(0x7ff4000000000000ull, 0x7ff4000000000000ull));
    assert_int_equal(named("i8x16.extract_lane_s", SIMD_EXTRACT)->extract(V8(0x80), 0),
                     0xffffff80u);
    assert_int_equal(named("i16x8.extract_lane_u", SIMD_EXTRACT)->extract(V16(0, 0xfffe), 1),
                     0xfffe);
    assert_int_equal(
        named("f32x4.extract_lane", SIMD_EXTRACT)->extract(V32(0, 0, 0, 0xff800001u), 3),
        0xff800001u);
    expect("replace", named("i64x2.replace_lane", SIMD_REPLACE)->replace(V64(1, 2), 1, 9),
           V64(1, 9));
}

static void memory_forms_touch_their_width_only(void **state) {
    (void)state;
    const uint8_t bytes[16] = {0x80, 1, 2, 3, 4, 5, 6, 0xff, 8, 9, 10, 11, 12, 13, 14, 15};
    expect("8x8", named("v128.load8x8_s", SIMD_LOAD)->load(bytes),
           V16(0xff80, 1, 2, 3, 4, 5, 6, 0xffff));
    expect("16", named("v128.load16_splat", SIMD_LOAD)->load(bytes + 1),
           V64(0x0201020102010201ull, 0x0201020102010201ull));
    expect("zero", named("v128.load32_zero", SIMD_LOAD)->load(bytes), V8(0x80, 1, 2, 3));
    const struct simd_op *lane = named("v128.load16_lane", SIMD_LOAD_LANE);
    assert_int_equal(lane->lanes, 8);
    expect("lane", lane->load_lane(bytes, V16(0), 7), V16(0, 0, 0, 0, 0, 0, 0, 0x0180));
    uint8_t out[6] = {9, 9, 9, 9, 9, 9};
    named("v128.store32_lane", SIMD_STORE_LANE)->store_lane(out + 1, V32(1, 2, 0x04030201u), 2);
    assert_memory_equal(out, "\x09\x01\x02\x03\x04\x09", 6);
}

UNIT_MAIN(cmocka_unit_test(every_row_has_the_function_of_its_shape),
          cmocka_unit_test(rows_agree_with_the_instruction_table),
          cmocka_unit_test(integer_lanes_wrap_and_saturate),
          cmocka_unit_test(q15mulr_rounds_and_saturates_once),
          cmocka_unit_test(narrowing_reads_signed_lanes),
          cmocka_unit_test(widening_takes_the_named_half),
          cmocka_unit_test(dot_products_wrap_as_i32),
          cmocka_unit_test(shifts_take_the_count_modulo_the_lane),
          cmocka_unit_test(tests_and_masks), cmocka_unit_test(float_lanes_give_canonical_nans),
          cmocka_unit_test(sign_and_choice_keep_nan_bits),
          cmocka_unit_test(relaxed_madd_rounds_twice),
          cmocka_unit_test(conversions_saturate_and_zero_the_rest),
          cmocka_unit_test(lanes_move_by_index),
          cmocka_unit_test(memory_forms_touch_their_width_only))
