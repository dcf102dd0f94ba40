#include "tests/unit/unit.h"

#include <string.h>

#include "base/defer.h"
#include "cell/log.h"

static struct slice text(const char *s) {
    return (struct slice){.data = (const uint8_t *)s, .len = strlen(s)};
}

static void write_sample(struct buf *log) {
    struct cell_start start = {.spec = 30,
                               .fuel = 1000,
                               .pages = 16,
                               .module = text("module"),
                               .function = text("main"),
                               .input = text("in"),
                               .grants = text("clock\n"),
                               .args = {.count = 1, .list = {wasm_i32(-7)}}};
    struct cell_call call = {.sequence = 1,
                             .name = text("clock"),
                             .taken = 99,
                             .results = {.count = 1, .list = {wasm_i64(1234567890123)}},
                             .given = text("bytes")};
    struct cell_end end = {.outcome = WASM_DONE, .text = text(""), .fuel = 42, .hash = {1, 2, 3}};
    end.results.count = 1;
    end.results.list[0] = (struct wasm_value){.type = WASM_V128, .v128 = {15, 14, 13}};
    assert_true(cell_log_start(log, &start));
    assert_true(cell_log_call(log, &call));
    assert_true(cell_log_end(log, &end));
}

static void a_log_reads_back_as_written(void **state) {
    (void)state;
    struct buf bytes DEFER(buf_done) = BUF(1 << 16);
    struct cell_log log;
    struct cell_call call;
    struct err err;
    write_sample(&bytes);
    assert_int_equal(cell_log_open(&log, bytes.data, bytes.len, &err), 0);
    assert_int_equal(log.start.fuel, 1000);
    assert_int_equal(log.start.args.list[0].i32, -7);
    assert_memory_equal(log.start.function.data, "main", 4);
    assert_true(cell_log_next(&log, &call));
    assert_int_equal(call.sequence, 1);
    assert_true(call.results.list[0].i64 == 1234567890123);
    assert_memory_equal(call.given.data, "bytes", 5);
    assert_false(cell_log_next(&log, &call));
    assert_int_equal(log.end.fuel, 42);
    assert_int_equal(log.end.results.list[0].v128[1], 14);
}

static void any_flipped_byte_or_cut_is_refused(void **state) {
    (void)state;
    struct buf bytes DEFER(buf_done) = BUF(1 << 16);
    struct cell_log log;
    struct err err;
    write_sample(&bytes);
    for (size_t i = 0; i < bytes.len; i++) {
        bytes.data[i] ^= 0x20;
        assert_int_equal(cell_log_open(&log, bytes.data, bytes.len, &err), -1);
        bytes.data[i] ^= 0x20;
        assert_int_equal(cell_log_open(&log, bytes.data, i, &err), -1);
    }
}

/* Someone who can compute the checksum still cannot make the reader leave the bytes. */
static void a_damaged_log_with_a_good_checksum_is_refused_or_read_within_bounds(void **state) {
    (void)state;
    struct buf bytes DEFER(buf_done) = BUF(1 << 16);
    struct err err;
    write_sample(&bytes);
    size_t body = bytes.len - 8;
    for (size_t i = 12; i < body; i++) {
        char was = bytes.data[i];
        bytes.data[i] = (char)0xff;
        uint64_t sum = cell_digest(bytes.data, body);
        for (int k = 0; k < 8; k++)
            bytes.data[body + (size_t)k] = (char)(sum >> 8 * k);
        struct cell_log log;
        struct cell_call call;
        if (cell_log_open(&log, bytes.data, bytes.len, &err) == 0)
            while (cell_log_next(&log, &call))
                assert_in_range((uintptr_t)call.given.data, (uintptr_t)bytes.data,
                                (uintptr_t)bytes.data + bytes.len);
        bytes.data[i] = was;
    }
}

/* A defined type is an index into the engine's types: from a file it could be any. */
static void a_value_of_a_defined_type_is_refused(void **state) {
    (void)state;
    const uint32_t types[] = {WASM_REF | 5, WASM_REF | WASM_NULLABLE | 0x0fffffff,
                              WASM_REF | WASM_ABSTRACT | 0x1000, 0x60, WASM_EXTERNREF};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct buf bytes DEFER(buf_done) = BUF(1 << 16);
        struct cell_start start = {.spec = 30};
        struct cell_end end = {.outcome = WASM_DONE};
        struct cell_log log;
        struct err err;
        end.results.count = 1;
        end.results.list[0] = (struct wasm_value){.type = types[i], .ref = 1};
        assert_true(cell_log_start(&bytes, &start) && cell_log_end(&bytes, &end));
        assert_int_equal(cell_log_open(&log, bytes.data, bytes.len, &err),
                         types[i] == WASM_EXTERNREF ? 0 : -1);
    }
}

static void another_version_is_unsupported(void **state) {
    (void)state;
    struct buf bytes DEFER(buf_done) = BUF(1 << 16);
    struct cell_log log;
    struct err err;
    write_sample(&bytes);
    bytes.data[8] = 9;
    assert_int_equal(cell_log_open(&log, bytes.data, bytes.len, &err), -1);
    assert_int_equal(err.code, ERR_UNSUPPORTED);
}

UNIT_MAIN(cmocka_unit_test(a_log_reads_back_as_written),
          cmocka_unit_test(any_flipped_byte_or_cut_is_refused),
          cmocka_unit_test(a_damaged_log_with_a_good_checksum_is_refused_or_read_within_bounds),
          cmocka_unit_test(a_value_of_a_defined_type_is_refused),
          cmocka_unit_test(another_version_is_unsupported))
