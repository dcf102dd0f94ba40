#include "tests/unit/unit.h"

#include "base/wire/msg.h"
#include "base/wire/port.h"

#include <string.h>

enum { WIRE = 4096, LINE = 1 << 16 };

/* One end, with its buffers, and the bytes that it has sent. */
struct end {
    struct port port;
    uint8_t wire[WIRE];
    uint8_t line[LINE];
    size_t sent;
    uint8_t packet[PORT_PACKET_MAX];
};

static struct end host, guest;

static void reset(void) {
    host.sent = guest.sent = 0;
    port_init(&host.port, true, host.wire, WIRE, host.packet);
    port_init(&guest.port, false, guest.wire, WIRE, guest.packet);
}

/* Sends frames through a buffer of `step` bytes. */
static void send_in_steps(struct end *e, const uint8_t *frames, size_t n, size_t step) {
    size_t written;
    while ((written = port_send(&e->port, &frames, &n, e->line + e->sent, step)) > 0)
        e->sent += written;
    assert_int_equal(n, 0);
}

static size_t frame_of(uint8_t *to, uint32_t id, const char *text, size_t n) {
    struct frame_head head = {.type = MSG_STDIN, .id = id};
    struct msg_data data = {.offset = id, .data = {(const uint8_t *)text, (uint32_t)n}};
    size_t bytes = msg_encode(to, FRAME_BYTES_MAX, &head, &data);
    assert_true(bytes > 0);
    return bytes;
}

static void send_text(struct end *e, uint32_t id, const char *text) {
    uint8_t frame[512];
    send_in_steps(e, frame, frame_of(frame, id, text, strlen(text)), 64);
}

static void give(struct end *e, const uint8_t *from, size_t n) {
    uint8_t *to;
    assert_true(port_space(&e->port, &to) >= n);
    memcpy(to, from, n);
    port_fed(&e->port, n);
}

/* Gives the bytes of one end to the other. */
static void carry(struct end *from, struct end *to) {
    give(to, from->line, from->sent);
    from->sent = 0;
}

static void expect(struct end *e, enum port_got want) {
    struct frame f;
    assert_int_equal(port_next(&e->port, &f), want);
}

static void expect_text(struct end *e, uint32_t id, const char *text) {
    struct frame f;
    struct msg_data data;
    assert_int_equal(port_next(&e->port, &f), PORT_FRAME);
    assert_int_equal(msg_get_input(&f, &data), 0);
    assert_int_equal(f.head.id, id);
    assert_int_equal(data.data.n, strlen(text));
    assert_memory_equal(data.data.p, text, data.data.n);
}

static void greet(uint64_t nonce) {
    port_connect(&host.port, nonce);
    send_in_steps(&host, NULL, 0, 64);
    carry(&host, &guest);
    expect(&guest, PORT_BEGIN);
    expect(&guest, PORT_MORE);
    send_in_steps(&guest, NULL, 0, 64);
    carry(&guest, &host);
    expect(&host, PORT_BEGIN);
    expect(&host, PORT_MORE);
}

static void frames_pass_in_both_directions_once_nonce_is_answered(void **state) {
    (void)state;
    reset();
    greet(7);
    send_text(&host, 1, "to the guest");
    send_text(&host, 2, "");
    carry(&host, &guest);
    expect_text(&guest, 1, "to the guest");
    expect_text(&guest, 2, "");
    expect(&guest, PORT_MORE);
    send_text(&guest, 3, "to the host");
    carry(&guest, &host);
    expect_text(&host, 3, "to the host");
}

static void host_may_send_frames_before_answer(void **state) {
    (void)state;
    reset();
    port_connect(&host.port, 7);
    send_text(&host, 1, "early");
    carry(&host, &guest);
    expect(&guest, PORT_BEGIN);
    expect_text(&guest, 1, "early");
}

static void guest_without_host_sends_only_lost(void **state) {
    (void)state;
    reset();
    uint8_t frame[64], line[64];
    const uint8_t *at = frame;
    size_t n = frame_of(frame, 1, "x", 1), left = n;
    size_t mark = port_send(&guest.port, &at, &left, line, sizeof(line));
    assert_true(mark > 0 && line[1] == 'L');
    assert_int_equal(left, n);
    assert_int_equal(port_send(&guest.port, &at, &left, line, sizeof(line)), 0);
}

static void host_discards_all_before_answer(void **state) {
    (void)state;
    reset();
    greet(7);
    send_text(&guest, 1, "of the connection before");
    send_text(&guest, 2, "cut in half");
    guest.sent -= 9;
    port_connect(&host.port, 8);
    carry(&guest, &host);
    expect(&host, PORT_MORE);
    send_in_steps(&host, NULL, 0, 64);
    carry(&host, &guest);
    expect(&guest, PORT_BEGIN);
    send_text(&guest, 3, "new");
    carry(&guest, &host);
    expect(&host, PORT_BEGIN);
    expect_text(&host, 3, "new");
}

static void host_ignores_answer_to_another_nonce(void **state) {
    (void)state;
    reset();
    port_connect(&host.port, 7);
    send_in_steps(&host, NULL, 0, 64);
    carry(&host, &guest);
    expect(&guest, PORT_BEGIN);
    send_text(&guest, 1, "for the first program");
    port_init(&host.port, true, host.wire, WIRE, host.packet);
    port_connect(&host.port, 8);
    carry(&guest, &host);
    expect(&host, PORT_MORE);
    assert_false(host.port.is_open);
}

static void guest_drops_half_a_frame_at_sync(void **state) {
    (void)state;
    reset();
    greet(7);
    send_text(&host, 1, "cut in half");
    host.sent /= 2;
    port_connect(&host.port, 8);
    send_text(&host, 2, "whole");
    carry(&host, &guest);
    expect(&guest, PORT_LOST);
    expect(&guest, PORT_BEGIN);
    expect_text(&guest, 2, "whole");
}

static void repeated_packets_are_ignored(void **state) {
    (void)state;
    reset();
    port_connect(&host.port, 7);
    send_text(&host, 1, "once");
    give(&guest, host.line, host.sent);
    give(&guest, host.line, host.sent);
    expect(&guest, PORT_BEGIN);
    expect_text(&guest, 1, "once");
    expect(&guest, PORT_MORE);
    assert_true(guest.port.is_open);
}

static void missing_packet_breaks_connection_and_guest_says_so(void **state) {
    (void)state;
    reset();
    greet(7);
    send_text(&host, 1, "missing");
    host.sent = 0;
    send_text(&host, 2, "next");
    carry(&host, &guest);
    expect(&guest, PORT_LOST);
    expect(&guest, PORT_MORE);
    send_in_steps(&guest, NULL, 0, 64);
    carry(&guest, &host);
    expect(&host, PORT_LOST);
    assert_false(host.port.is_open);
}

static void any_changed_byte_is_noticed(void **state) {
    (void)state;
    reset();
    greet(7);
    send_text(&host, 1, "every byte counts");
    size_t n = host.sent;
    struct port fresh = guest.port;
    for (size_t i = 0; i < n; i++) {
        guest.port = fresh;
        host.line[i] ^= 1;
        give(&guest, host.line, n);
        give(&guest, (const uint8_t[]){PORT_END}, 1);
        struct frame f;
        enum port_got got;
        while ((got = port_next(&guest.port, &f)) == PORT_MORE && i > 0 && i < n - 1)
            fail_msg("byte %zu", i);
        /* The first byte may be lost: it ends what came before. */
        assert_true(got == PORT_LOST || (i == n - 1 && got == PORT_FRAME));
        host.line[i] ^= 1;
    }
}

static void guest_that_started_again_is_noticed(void **state) {
    (void)state;
    reset();
    greet(7);
    port_init(&guest.port, false, guest.wire, WIRE, guest.packet);
    send_text(&host, 1, "for the guest before");
    carry(&host, &guest);
    expect(&guest, PORT_MORE);
    send_in_steps(&guest, NULL, 0, 64);
    carry(&guest, &host);
    expect(&host, PORT_LOST);
}

static void own_bytes_that_come_back_are_no_frames(void **state) {
    (void)state;
    reset();
    greet(7);
    send_text(&host, 1, "echo");
    give(&host, host.line, host.sent);
    expect(&host, PORT_LOST);
}

/* Payloads of nothing but special bytes, cut at every place of the buffers. */
static void payload_cannot_hold_marks(void **state) {
    (void)state;
    static uint8_t frames[FRAME_BYTES_MAX];
    char text[] = "\xc0S\x07\0\0\0\0\0\0\0\xc0\xc0\xdb\xdb\xdc\xdd\xdb\xc0\xc0L";
    for (size_t step = 2; step < 80; step++) {
        reset();
        greet(7);
        size_t n = frame_of(frames, 1, text, sizeof(text));
        send_in_steps(&host, frames, n, step);
        for (size_t i = 1; i + 1 < host.sent; i++)
            assert_int_not_equal(host.line[i], PORT_END);
        carry(&host, &guest);
        struct frame f;
        struct msg_data data;
        assert_int_equal(port_next(&guest.port, &f), PORT_FRAME);
        assert_int_equal(msg_get_input(&f, &data), 0);
        assert_int_equal(data.data.n, sizeof(text));
        assert_memory_equal(data.data.p, text, sizeof(text));
        expect(&guest, PORT_MORE);
    }
}

static void longer_packet_than_a_frame_is_refused(void **state) {
    (void)state;
    reset();
    greet(7);
    uint8_t part[WIRE];
    memset(part, 'H', sizeof(part));
    struct frame f;
    for (size_t n = 0; n < 2 * PORT_PACKET_MAX; n += sizeof(part)) {
        give(&guest, part, sizeof(part));
        assert_int_equal(port_next(&guest.port, &f), PORT_MORE);
    }
    assert_true(guest.port.in.have <= PORT_PACKET_MAX);
    give(&guest, (const uint8_t[]){PORT_END}, 1);
    expect(&guest, PORT_LOST);
}

UNIT_MAIN(cmocka_unit_test(frames_pass_in_both_directions_once_nonce_is_answered),
          cmocka_unit_test(host_may_send_frames_before_answer),
          cmocka_unit_test(guest_without_host_sends_only_lost),
          cmocka_unit_test(host_discards_all_before_answer),
          cmocka_unit_test(host_ignores_answer_to_another_nonce),
          cmocka_unit_test(guest_drops_half_a_frame_at_sync),
          cmocka_unit_test(repeated_packets_are_ignored),
          cmocka_unit_test(missing_packet_breaks_connection_and_guest_says_so),
          cmocka_unit_test(any_changed_byte_is_noticed),
          cmocka_unit_test(guest_that_started_again_is_noticed),
          cmocka_unit_test(own_bytes_that_come_back_are_no_frames),
          cmocka_unit_test(payload_cannot_hold_marks),
          cmocka_unit_test(longer_packet_than_a_frame_is_refused))
