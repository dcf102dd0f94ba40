#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "base/err.h"
#include "io/sha1.h"
#include "io/sse.h"
#include "io/websocket.h"

/* What a stream of frames means, as one line of text. */
static void tell(char *to, size_t size, enum ws_role role, const char *bytes, size_t n,
                 size_t step) {
    struct ws_decoder d;
    char *copy DEFER_FREE = malloc(n ? n : 1);
    size_t at = 0, shown = 0, len = 0;
    memcpy(copy, bytes, n);
    ws_decoder_begin(&d, role, 1000);
    to[0] = '\0';
    for (;;) {
        struct ws_event e;
        size_t used;
        int r = ws_next(&d, copy + at, shown - at, &used, &e);
        if (r < 0) {
            snprintf(to + len, size - len, "!%d", d.error);
            return;
        }
        at += used;
        if (r == 0) {
            if (shown == n)
                return;
            shown = shown + step < n ? shown + step : n;
            continue;
        }
        /* Pieces of one message run together, so that the cuts do not show. */
        bool data = e.opcode < WS_CLOSE;
        if (!data || e.first)
            len += (size_t)snprintf(to + len, size - len, "%d:", e.opcode);
        if (e.code)
            len += (size_t)snprintf(to + len, size - len, "%d,", e.code);
        len +=
            (size_t)snprintf(to + len, size - len, "%.*s%s", (int)e.n, e.data, e.last ? ";" : "");
    }
}

#define WIRE(bytes) bytes, sizeof(bytes) - 1

static const struct {
    enum ws_role role;
    const char *wire;
    size_t n;
    const char *want;
} table[] = {
    {WS_CLIENT, WIRE("\x81\x05hello"), "1:hello;"},
    {WS_CLIENT, WIRE("\x82\x00"), "2:;"},
    {WS_CLIENT, WIRE("\x01\x03hel\x80\x02lo"), "1:hello;"},
    {WS_CLIENT, WIRE("\x01\x03hel\x89\x02hi\x00\x00\x80\x02lo\x8a\x00"), "1:hel9:hi;lo;10:;"},
    {WS_CLIENT, WIRE("\x01\x00\x80\x00"), "1:;"},
    {WS_CLIENT, WIRE("\x88\x00"), "8:1005,;"},
    {WS_CLIENT,
     WIRE("\x88\x05\x03\xe8"
          "bye"),
     "8:1000,bye;"},
    {WS_SERVER, WIRE("\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"), "1:Hello;"},
    {WS_SERVER, WIRE("\x81\x80\x01\x02\x03\x04"), "1:;"},
    {WS_CLIENT, WIRE("\x01\x02\xe2\x82\x80\x01\xac"), "1:\xe2\x82\xac;"},

    {WS_SERVER, WIRE("\x81\x05hello"), "!1002"},
    {WS_CLIENT, WIRE("\x81\x85"), "!1002"},
    {WS_CLIENT, WIRE("\xc1\x00"), "!1002"},
    {WS_CLIENT, WIRE("\xa1\x00"), "!1002"},
    {WS_CLIENT, WIRE("\x91\x00"), "!1002"},
    {WS_CLIENT, WIRE("\x83\x00"), "!1002"},
    {WS_CLIENT, WIRE("\x8b\x00"), "!1002"},
    {WS_CLIENT, WIRE("\x80\x00"), "!1002"},
    {WS_CLIENT, WIRE("\x01\x01x\x81\x00"), "1:x!1002"},
    {WS_CLIENT, WIRE("\x09\x00"), "!1002"},
    {WS_CLIENT, WIRE("\x89\x7e"), "!1002"},
    {WS_CLIENT, WIRE("\x82\x7e\x00\x7d"), "!1002"},
    {WS_CLIENT, WIRE("\x82\x7f\x00\x00\x00\x00\x00\x00\xff\xff"), "!1002"},
    {WS_CLIENT, WIRE("\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x00"), "!1002"},
    {WS_CLIENT, WIRE("\x82\x7e\x03\xe9"), "!1009"},
    {WS_CLIENT, WIRE("\x02\x01x\x80\x7e\x03\xe8"), "2:x!1009"},
    {WS_CLIENT, WIRE("\x81\x01\xff"), "!1007"},
    {WS_CLIENT, WIRE("\x81\x01\xc3"), "!1007"},
    {WS_CLIENT, WIRE("\x88\x01\x03"), "!1002"},
    {WS_CLIENT, WIRE("\x88\x02\x03\xed"), "!1002"},
    {WS_CLIENT, WIRE("\x88\x02\x13\x88"), "!1002"},
    {WS_CLIENT, WIRE("\x88\x03\x03\xe8\xff"), "!1007"},
};

static void every_stream_in_the_table_means_the_same_however_cut(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
        for (size_t step = 1; step <= table[i].n; step++) {
            char got[256];
            tell(got, sizeof(got), table[i].role, table[i].wire, table[i].n, step);
            if (strcmp(got, table[i].want) != 0)
                fail_msg("row %zu by %zu: '%s' instead of '%s'", i, step, got, table[i].want);
        }
}

static void heads_are_read_back_as_written(void **state) {
    const uint64_t sizes[] = {0, 1, 125, 126, 127, 65535, 65536, 1ull << 40};
    const uint8_t mask[] = {1, 2, 3, 4};
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        for (int masked = 0; masked < 2; masked++) {
            struct ws_decoder d;
            struct ws_event e;
            uint8_t head[WS_HEAD_MAX];
            size_t used;
            size_t n = ws_head(head, WS_BINARY, true, sizes[i], masked ? mask : NULL);
            ws_decoder_begin(&d, masked ? WS_SERVER : WS_CLIENT, UINT64_MAX);
            int r = ws_next(&d, (char *)head, n, &used, &e);
            assert_int_equal(r, sizes[i] == 0);
            assert_int_equal(used, n);
            assert_int_equal(d.left, sizes[i]);
        }
}

static void masking_twice_gives_the_same_at_any_offset(void **state) {
    const uint8_t mask[] = {0x11, 0x22, 0x44, 0x88};
    char bytes[40], whole[40];
    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = whole[i] = (char)(i * 7);
    ws_mask(whole, sizeof(whole), mask, 0);
    for (size_t cut = 0; cut <= sizeof(bytes); cut++) {
        char pieces[40];
        memcpy(pieces, bytes, sizeof(bytes));
        ws_mask(pieces, cut, mask, 0);
        ws_mask(pieces + cut, sizeof(pieces) - cut, mask, cut);
        assert_memory_equal(pieces, whole, sizeof(whole));
        ws_mask(pieces, sizeof(pieces), mask, 0);
        assert_memory_equal(pieces, bytes, sizeof(bytes));
    }
}

static void a_close_reason_is_cut_between_characters(void **state) {
    char to[WS_CONTROL_MAX], reason[200];
    (void)state;
    memset(reason, 'x', sizeof(reason));
    reason[199] = '\0';
    memcpy(reason + 122, "\xc3\xa9", 2);
    assert_int_equal(ws_close_payload(to, 1000, reason), 124);
    assert_int_equal(ws_close_payload(to, 1000, "bye"), 5);
    assert_memory_equal(to,
                        "\x03\xe8"
                        "bye",
                        5);
    assert_int_equal(ws_close_payload(to, 1000, NULL), 2);
    assert_int_equal(ws_close_payload(to, WS_NO_CODE, "bye"), 0);
}

static void the_handshake_is_that_of_the_standard(void **state) {
    char accept[WS_ACCEPT_SIZE], key[WS_KEY_SIZE];
    (void)state;
    ws_accept("dGhlIHNhbXBsZSBub25jZQ==", 24, accept);
    assert_string_equal(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    ws_key((const uint8_t *)"the sample nonce", key);
    assert_string_equal(key, "dGhlIHNhbXBsZSBub25jZQ==");
    assert_true(ws_key_valid(key, 24));
    assert_false(ws_key_valid(key, 23));
    assert_false(ws_key_valid("dGhlIHNhbXBsZSBub25jZQ=!", 24));
    assert_false(ws_key_valid("dGhlIHNhbXBs*SBub25jZQ==", 24));
}

static void sha1_is_that_of_the_standard(void **state) {
    static const struct {
        const char *text, *hash;
    } rows[] = {
        {"", "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
        {"abc", "a9993e364706816aba3e25717850c26c9cd0d89d"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "84983e441c3bd26ebaae4aa1f95129e5e54670f1"},
    };
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        uint8_t hash[SHA1_BYTES];
        char hex[41];
        sha1_short(rows[i].text, strlen(rows[i].text), hash);
        for (int k = 0; k < SHA1_BYTES; k++)
            snprintf(hex + 2 * k, 3, "%02x", hash[k]);
        assert_string_equal(hex, rows[i].hash);
    }
}

/* Server-sent events */

static void an_event_is_written_line_by_line(void **state) {
    struct buf b DEFER(buf_done) = BUF(200);
    const char *data = "one\ntwo\r\nthree\r\rfive\n";
    (void)state;
    struct sse_event e = {"12", "exit", data, strlen(data), 250};
    assert_true(sse_put(&b, &e));
    assert_string_equal(b.data, "id: 12\nevent: exit\nretry: 250\ndata: one\ndata: two\n"
                                "data: three\ndata: \ndata: five\ndata: \n\n");
    b.len = 0;
    assert_true(sse_put(&b, &(struct sse_event){.data = "", .n = 0}));
    assert_true(sse_put_comment(&b, "beat"));
    assert_string_equal(b.data, "data: \n\n: beat\n\n");
}

static void an_event_cannot_be_broken_apart(void **state) {
    struct buf b DEFER(buf_done) = BUF(30);
    (void)state;
    assert_false(sse_put(&b, &(struct sse_event){.id = "1\ndata: x", .data = "", .n = 0}));
    assert_false(sse_put(&b, &(struct sse_event){.name = "a\rb", .data = "", .n = 0}));
    assert_false(sse_put_comment(&b, "a\n\ndata: x"));
    assert_false(sse_put(&b, &(struct sse_event){.data = "012345678901234567890123", .n = 24}));
    assert_int_equal(b.len, 0);
    assert_true(sse_put(&b, &(struct sse_event){.data = "0123456789", .n = 10}));
}

#define CASE(f) cmocka_unit_test(f)
UNIT_MAIN(CASE(every_stream_in_the_table_means_the_same_however_cut),
          CASE(heads_are_read_back_as_written), CASE(masking_twice_gives_the_same_at_any_offset),
          CASE(a_close_reason_is_cut_between_characters),
          CASE(the_handshake_is_that_of_the_standard), CASE(sha1_is_that_of_the_standard),
          CASE(an_event_is_written_line_by_line), CASE(an_event_cannot_be_broken_apart))
