#include "tests/unit/unit.h"

#include "base/wire/frame.h"
#include "base/wire/msg.h"

#include <string.h>

static uint8_t wire[FRAME_BYTES_MAX + 64];
static uint8_t space[FRAME_BYTES_MAX];

static struct frame_head head_of(uint16_t type) {
    return (struct frame_head){.type = type, .id = 7, .tag = 9};
}

static size_t feed(struct frame_decoder *d, const uint8_t *from, size_t n) {
    uint8_t *to;
    size_t room = frame_space(d, &to);
    n = n < room ? n : room;
    memcpy(to, from, n);
    frame_fed(d, n);
    return n;
}

static struct frame only_frame(struct frame_decoder *d, size_t n) {
    struct frame f;
    assert_int_equal(feed(d, wire, n), n);
    assert_int_equal(frame_next(d, &f), 1);
    return f;
}

static const struct msg_exec sample_exec = {
    .flags = MSG_EXEC_QUIET,
    .stdio = {MSG_STDIO_FD, MSG_STDIO_PIPE, MSG_STDIO_SAME},
    .rows = 50,
    .cols = 132,
    .window = 65536,
    .uid = 1000,
    .gid = MSG_ID_NONE,
    .timeout_ms = 1ull << 40,
    .groups = {.count = 2, .v = {4, 27}},
    .rlimits = {.count = 1, .v = {{.resource = 7, .soft = 64, .hard = UINT64_MAX}}},
    .cwd = {"/home/user", 10},
    .argv = {.v = (const char *const[]){"sh", "-c", "", NULL}},
    .env = {.v = (const char *const[]){NULL}},
};

static size_t encode_sample(void) {
    struct frame_head head = head_of(MSG_EXEC);
    size_t n = msg_encode(wire, sizeof(wire), &head, &sample_exec);
    assert_true(n > FRAME_HEAD_BYTES);
    return n;
}

static void expect_sample(const struct frame *f) {
    struct msg_exec e;
    assert_int_equal(f->head.type, MSG_EXEC);
    assert_int_equal(f->head.id, 7);
    assert_int_equal(f->head.tag, 9);
    assert_int_equal(msg_get_exec(f, &e), 0);
    assert_memory_equal(e.stdio, sample_exec.stdio, 3);
    assert_int_equal(e.rows, 50);
    assert_int_equal(e.uid, 1000);
    assert_int_equal(e.gid, MSG_ID_NONE);
    assert_true(e.timeout_ms == 1ull << 40);
    assert_int_equal(e.groups.v[1], 27);
    assert_true(e.rlimits.v[0].hard == UINT64_MAX);
    assert_string_equal(e.cwd.s, "/home/user");
    assert_int_equal(e.argv.count, 3);
    assert_memory_equal(e.argv.s, "sh\0-c\0\0", 7);
    assert_int_equal(e.env.count, 0);
}

static void a_message_survives_the_wire(void **state) {
    (void)state;
    struct frame_decoder d = FRAME_DECODER(space, sizeof(space));
    struct frame f = only_frame(&d, encode_sample());
    expect_sample(&f);
    assert_int_equal(frame_next(&d, &f), 0);
}

static void two_frames_split_at_every_byte_are_the_same_frames(void **state) {
    (void)state;
    size_t n = encode_sample();
    memcpy(wire + n, wire, n);
    for (size_t cut = 0; cut <= 2 * n; cut++) {
        struct frame_decoder d = FRAME_DECODER(space, 2 * n);
        struct frame f;
        size_t got = 0;
        feed(&d, wire, cut);
        while (frame_next(&d, &f) == 1)
            expect_sample(&f), got++;
        feed(&d, wire + cut, 2 * n - cut);
        while (frame_next(&d, &f) == 1)
            expect_sample(&f), got++;
        assert_int_equal(got, 2);
    }
}

static void a_hostile_header_breaks_the_stream_for_good(void **state) {
    (void)state;
    static const struct frame_head bad[] = {
        {.bytes = FRAME_PAYLOAD_MAX + 1, .type = MSG_PING},
        {.bytes = UINT32_MAX, .type = MSG_PING},
        {.bytes = 0, .type = MSG_PING, .flags = 0x8000},
        {.bytes = 0, .type = MSG_PING, .flags = FRAME_FDS_MAX + 1},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct frame_decoder d = FRAME_DECODER(space, sizeof(space));
        struct frame f;
        uint8_t *to;
        frame_head_put(wire, &bad[i]);
        feed(&d, wire, FRAME_HEAD_BYTES);
        assert_int_equal(frame_next(&d, &f), -1);
        assert_int_equal(frame_next(&d, &f), -1);
        assert_int_equal(frame_space(&d, &to), 0);
    }
}

static void a_small_buffer_refuses_what_it_cannot_hold(void **state) {
    (void)state;
    struct frame_decoder d = FRAME_DECODER(space, 64);
    struct frame f;
    frame_head_put(wire, &(struct frame_head){.bytes = 49, .type = MSG_PING});
    feed(&d, wire, FRAME_HEAD_BYTES);
    assert_int_equal(frame_next(&d, &f), -1);
}

static void every_truncation_and_extension_of_a_payload_is_refused(void **state) {
    (void)state;
    size_t n = encode_sample();
    memset(wire + n, 0, 8);
    struct msg_exec e;
    struct frame f = {.head = head_of(MSG_EXEC), .payload = wire + FRAME_HEAD_BYTES};
    for (f.head.bytes = 0; f.head.bytes < n - FRAME_HEAD_BYTES + 8; f.head.bytes++)
        assert_int_equal(msg_get_exec(&f, &e), f.head.bytes == n - FRAME_HEAD_BYTES ? 0 : -1);
}

static void a_string_with_a_nul_inside_is_refused(void **state) {
    (void)state;
    struct frame_head head = head_of(MSG_STAT);
    struct msg_path p = {.path = {"/a\0b", 4}};
    struct frame_decoder d = FRAME_DECODER(space, sizeof(space));
    struct frame f = only_frame(&d, msg_encode(wire, sizeof(wire), &head, &p));
    assert_int_equal(msg_get_stat(&f, &p), -1);
}

static void a_false_count_of_strings_is_refused(void **state) {
    (void)state;
    struct frame_head head = head_of(MSG_EXEC);
    struct msg_exec e = sample_exec;
    e.argv = (struct msg_strs){.s = "a\0b", .n = 4, .count = 3};
    struct frame_decoder d = FRAME_DECODER(space, sizeof(space));
    struct frame f = only_frame(&d, msg_encode(wire, sizeof(wire), &head, &e));
    assert_int_equal(msg_get_exec(&f, &e), -1);
}

static void unknown_types_and_wrong_structs_are_refused(void **state) {
    (void)state;
    struct msg_ok ok;
    struct frame f = {.head = {.type = 0xffff}, .payload = wire};
    assert_int_equal(msg_get_ok(&f, &ok), -1);
    f.head.type = 0;
    assert_int_equal(msg_get_ok(&f, &ok), -1);
    f.head.type = MSG_HELLO;
    assert_int_equal(msg_get_ok(&f, &ok), -1);
    assert_string_equal(msg_type_name(MSG_EXEC), "EXEC");
    assert_string_equal(msg_type_name(0), "?");
}

/* LOG_GREW and TABLE_ROWS are equally large: one read as the other is a pointer that a guest chose.
 */
static void a_frame_is_read_only_as_the_kind_that_is_asked_for(void **state) {
    (void)state;
    struct frame_head head = head_of(MSG_LOG_GREW);
    struct msg_log log = {.produced = {0x4141414141414141, 0x4242424242424242}, .ended = 3};
    struct msg_rows rows = {.count = 5};
    struct frame_decoder d = FRAME_DECODER(space, sizeof(space));
    struct frame f = only_frame(&d, msg_encode(wire, sizeof(wire), &head, &log));
    assert_int_equal(sizeof(log), sizeof(rows));
    assert_int_equal(msg_get_rows(&f, &rows), -1);
    assert_int_equal(rows.count, 5);
    assert_null(rows.rows.p);
    assert_int_equal(msg_get_log_wait(&f, &log), -1);
    assert_int_equal(msg_get_log_grew(&f, &log), 0);
}

static void a_request_has_its_own_answer(void **state) {
    (void)state;
    assert_true(msg_answers(MSG_TABLE, MSG_TABLE_ROWS));
    assert_true(msg_answers(MSG_TABLE, MSG_ERROR));
    assert_false(msg_answers(MSG_TABLE, MSG_LOG_GREW));
    assert_false(msg_answers(MSG_TABLE, MSG_OK));
    assert_true(msg_answers(MSG_EXEC, MSG_EXEC_STARTED));
    assert_true(msg_answers(MSG_EXEC, MSG_EXEC_FAILED));
    assert_false(msg_answers(MSG_EXEC, MSG_EXIT));
    assert_true(msg_answers(MSG_WRITE, MSG_OK));
    assert_false(msg_answers(MSG_WRITE, MSG_ENTRY));
}

static void what_does_not_fit_is_not_written(void **state) {
    (void)state;
    struct frame_head head = head_of(MSG_EXEC);
    size_t n = encode_sample();
    for (size_t cap = 0; cap < n; cap++)
        assert_int_equal(msg_encode(wire, cap, &head, &sample_exec), 0);
    assert_int_equal(msg_encode(wire, n, &head, &sample_exec), n);

    head.type = MSG_STDOUT;
    struct msg_data data = {.data = {space, FRAME_PAYLOAD_MAX - 7}};
    assert_int_equal(msg_encode(wire, sizeof(wire), &head, &data), 0);
}

static void a_tail_put_behind_the_fields_is_part_of_the_message(void **state) {
    (void)state;
    struct frame_head head = head_of(MSG_STDOUT);
    struct msg_data data = {.offset = 1ull << 33};
    size_t n = msg_encode_before(wire, sizeof(wire), &head, &data, 5);
    memcpy(wire + n, "hello", 5);
    struct frame_decoder d = FRAME_DECODER(space, sizeof(space));
    struct frame f = only_frame(&d, n + 5);
    assert_int_equal(msg_get_output(&f, &data), 0);
    assert_true(data.offset == 1ull << 33);
    assert_int_equal(data.data.n, 5);
    assert_memory_equal(data.data.p, "hello", 5);
}

static void rows_and_entries_come_off_a_page_one_by_one(void **state) {
    (void)state;
    struct msg_entry e = {.mode = 0100644, .size = 3, .name = {"one", 3}};
    size_t n = msg_entry_put(wire, sizeof(wire), &e);
    e.name = (struct msg_str){"two", 3};
    n += msg_entry_put(wire + n, sizeof(wire) - n, &e);
    struct msg_bytes page = {wire, (uint32_t)n};
    assert_int_equal(msg_entry_next(&page, &e), 1);
    assert_string_equal(e.name.s, "one");
    assert_int_equal(msg_entry_next(&page, &e), 1);
    assert_string_equal(e.name.s, "two");
    assert_int_equal(msg_entry_next(&page, &e), 0);
    page = (struct msg_bytes){wire, (uint32_t)n - 1};
    assert_int_equal(msg_entry_next(&page, &e), 1);
    assert_int_equal(msg_entry_next(&page, &e), -1);

    struct msg_row row = {.id = 3, .state = MSG_STATE_EXITED, .exit = {.status = 7}};
    n = msg_row_put(wire, sizeof(wire), &row);
    page = (struct msg_bytes){wire, (uint32_t)n};
    row = (struct msg_row){0};
    assert_int_equal(msg_row_next(&page, &row), 1);
    assert_int_equal(row.exit.status, 7);
    assert_int_equal(msg_row_next(&page, &row), 0);
}

UNIT_MAIN(cmocka_unit_test(a_message_survives_the_wire),
          cmocka_unit_test(two_frames_split_at_every_byte_are_the_same_frames),
          cmocka_unit_test(a_hostile_header_breaks_the_stream_for_good),
          cmocka_unit_test(a_small_buffer_refuses_what_it_cannot_hold),
          cmocka_unit_test(every_truncation_and_extension_of_a_payload_is_refused),
          cmocka_unit_test(a_string_with_a_nul_inside_is_refused),
          cmocka_unit_test(a_false_count_of_strings_is_refused),
          cmocka_unit_test(unknown_types_and_wrong_structs_are_refused),
          cmocka_unit_test(a_frame_is_read_only_as_the_kind_that_is_asked_for),
          cmocka_unit_test(a_request_has_its_own_answer),
          cmocka_unit_test(what_does_not_fit_is_not_written),
          cmocka_unit_test(a_tail_put_behind_the_fields_is_part_of_the_message),
          cmocka_unit_test(rows_and_entries_come_off_a_page_one_by_one))
