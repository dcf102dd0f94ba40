#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "io/screen/rfb.h"

/* A server's side, as literal bytes: none of it is made by the code under test. */
#define VERSION "RFB 003.008\n"
#define HELLO(w, h)                                                                    \
    VERSION "\1\1\0\0\0\0\0" w "\0" h "\x20\x18\0\1\0\xff\0\xff\0\xff\x10\x08\0\0\0\0" \
            "\0\0\0\4name"
#define RECT(x, y, w, h, encoding) "\0" x "\0" y "\0" w "\0" h "\0\0\0" encoding

static int take(struct rfb *r, const char *bytes, size_t n, struct err *err) {
    return rfb_take(r, (const uint8_t *)bytes, n, err);
}
#define TAKE_ALL(r, text, err) take(r, text, sizeof(text) - 1, err)

static struct rfb *greeted(void) {
    struct rfb *r = rfb_new();
    struct err err;
    assert_int_equal(TAKE_ALL(r, HELLO("\4", "\2"), &err), 0);
    assert_true(rfb_is_ready(r));
    buf_drop(rfb_out(r), rfb_out(r)->len);
    return r;
}

static void refused(const char *bytes, size_t n, bool asks, const char *why) {
    struct rfb *r = asks ? greeted() : rfb_new();
    struct err err;
    if (asks)
        assert_true(rfb_ask(r, false));
    assert_int_equal(take(r, bytes, n, &err), -1);
    assert_non_null(strstr(err.text, why));
    assert_int_equal(TAKE_ALL(r, "\2", &err), -1);
    rfb_free(r);
}
#define REFUSED(text, asks, why) refused(text, sizeof(text) - 1, asks, why)

static void a_handshake_is_the_same_however_it_is_cut(void **state) {
    static const char all[] = HELLO("\4", "\2");
    static const char want[] = VERSION "\1\1";
    struct err err;
    (void)state;
    for (size_t step = 1; step < sizeof(all); step++) {
        struct rfb *r = rfb_new();
        for (size_t i = 0; i < sizeof(all) - 1; i += step) {
            assert_false(rfb_is_ready(r));
            size_t left = sizeof(all) - 1 - i;
            assert_int_equal(take(r, all + i, step < left ? step : left, &err), 0);
        }
        assert_true(rfb_is_ready(r));
        assert_int_equal(rfb_width(r), 4);
        assert_int_equal(rfb_height(r), 2);
        assert_memory_equal(rfb_out(r)->data, want, sizeof(want) - 1);
        rfb_free(r);
    }
}

static void a_picture_comes_in_rectangles(void **state) {
    static const char picture[] =
        "\0\0\0\2" RECT("\0", "\0", "\4", "\1",
                        "\0") "aaa.bbb.ccc.ddd." RECT("\2", "\1", "\2", "\1", "\0") "eee.fff.";
    static const char rest[] = "\2\1\0\0\0\0\1rrggbb\3\0\0\0\0\0\0\3cut"
                               "\0\0\0\1" RECT("\0", "\1", "\2", "\1", "\0") "ggg.hhh.";
    struct rfb *r = greeted();
    struct err err;
    (void)state;
    assert_true(rfb_ask(r, false));
    assert_memory_equal(rfb_out(r)->data, "\3\0\0\0\0\0\0\4\0\2", 10);
    assert_int_equal(TAKE_ALL(r, picture, &err), 0);
    assert_false(rfb_is_answered(r));
    assert_int_equal(TAKE_ALL(r, rest, &err), 0);
    assert_true(rfb_is_answered(r));
    uint8_t *pixels DEFER_FREE = rfb_pixels_take(r);
    assert_memory_equal(pixels, "aaa.bbb.ccc.ddd.ggg.hhh.eee.fff.", 32);
    rfb_free(r);
}

static void input_is_written_as_events(void **state) {
    struct rfb *r = greeted();
    (void)state;
    assert_true(rfb_point(r, RFB_LEFT | RFB_RIGHT, 258, 3));
    assert_true(rfb_key(r, 0x0100263a, true));
    assert_true(rfb_ask(r, true));
    assert_int_equal(rfb_out(r)->len, 6 + 8 + 10);
    assert_memory_equal(rfb_out(r)->data, "\5\5\1\2\0\3\4\1\0\0\1\0\x26\x3a\3\0\0\0\0\0\0\1\0\1",
                        24);
    rfb_free(r);
}

static void input_that_nobody_reads_is_limited(void **state) {
    struct rfb *r = greeted();
    unsigned n = 0;
    (void)state;
    while (rfb_key(r, 'a', true))
        n++;
    assert_true(n > 1000 && rfb_out(r)->len <= RFB_OUT_MAX);
    rfb_free(r);
}

static void hostile_servers_are_refused(void **state) {
    (void)state;
    REFUSED("RFB 003.003\n", false, "another version");
    REFUSED(VERSION "\0", false, "a refusal instead");
    REFUSED(VERSION "\2\2\5", false, "no password");
    REFUSED(VERSION "\1\1\0\0\0\1", false, "a refusal of this client");
    REFUSED(HELLO("\0", "\2"), false, "size");
    REFUSED(VERSION "\1\1\0\0\0\0\x10\1\0\1................\0\0\0\0", false, "size");
    REFUSED(VERSION "\1\1\0\0\0\0\x10\0\x10\0................\0\0\0\0", false, "size");
    REFUSED(VERSION "\1\1\0\0\0\0\0\1\0\1................\x7f\xff\xff\xff", false, "name");
    REFUSED(HELLO("\4", "\2") "\0\0\0\1", false, "nobody asked for");
    REFUSED("\4", true, "unknown type");
    REFUSED("\3\0\0\0\xff\xff\xff\xff", true, "clipboard");
    REFUSED("\0\0\0\1" RECT("\1", "\0", "\4", "\1", "\0"), true, "outside");
    REFUSED("\0\0\0\1" RECT("\0", "\2", "\1", "\1", "\0"), true, "outside");
    REFUSED("\0\0\0\1\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", true, "outside");
    REFUSED("\0\0\0\1" RECT("\0", "\0", "\4", "\1", "\5"), true, "encoding");
}

static void a_server_that_never_stops_is_refused(void **state) {
    struct rfb *r = greeted();
    char bells[1000];
    struct err err;
    size_t n = 0;
    (void)state;
    memset(bells, 2, sizeof(bells));
    assert_true(rfb_ask(r, false));
    while (n < 64u << 20 && take(r, bells, sizeof(bells), &err) == 0)
        n += sizeof(bells);
    assert_true(n < 4u << 20);
    rfb_free(r);
}

static void no_pixel_is_written_after_they_were_taken(void **state) {
    struct rfb *r = greeted();
    struct err err;
    (void)state;
    assert_true(rfb_ask(r, true));
    assert_int_equal(TAKE_ALL(r,
                              "\0\0\0\1" RECT("\0", "\0", "\1", "\1",
                                              "\0") "abc."
                                                    "\0\0\0\1" RECT("\0", "\0", "\1", "\1", "\0"),
                              &err),
                     0);
    free(rfb_pixels_take(r));
    assert_int_equal(TAKE_ALL(r, "abc.", &err), -1);
    rfb_free(r);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handshake_is_the_same_however_it_is_cut),
        cmocka_unit_test(a_picture_comes_in_rectangles),
        cmocka_unit_test(input_is_written_as_events),
        cmocka_unit_test(input_that_nobody_reads_is_limited),
        cmocka_unit_test(hostile_servers_are_refused),
        cmocka_unit_test(a_server_that_never_stops_is_refused),
        cmocka_unit_test(no_pixel_is_written_after_they_were_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
