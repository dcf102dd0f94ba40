#include "tests/unit/unit.h"

#include <string.h>

#include "base/defer.h"
#include "io/screen/rfb_viewer.h"

#define VERSION "RFB 003.008\n"
#define FORMAT "\x20\x18\0\1\0\xff\0\xff\0\xff\0\x08\x10\0\0\0"
#define HELLO VERSION "\1\1"
#define RECT(x, y, w, h, encoding) "\0" x "\0" y "\0" w "\0" h "\0\0\0" encoding

/* A viewer between a server with a screen of 4 times 2 pixels and the bytes that it shows. */
struct scene {
    struct rfb *server;
    struct rfb_viewer *viewer;
    struct buf shown;
};

static void scene_begin(struct scene *s, size_t shown_max) {
    static const char server[] = VERSION "\1\1\0\0\0\0\0\4\0\2" FORMAT "\0\0\0\5<evil";
    struct err err;
    s->server = rfb_new();
    s->shown = (struct buf)BUF(shown_max);
    assert_int_equal(rfb_take(s->server, (const uint8_t *)server, sizeof(server) - 1, &err), 0);
    assert_true(rfb_is_ready(s->server));
    buf_drop(rfb_out(s->server), rfb_out(s->server)->len);
    s->viewer = rfb_viewer_new(s->server, &s->shown);
}

static void scene_end(struct scene *s) {
    rfb_viewer_free(s->viewer);
    rfb_free(s->server);
    buf_done(&s->shown);
}

static int scene_take(struct scene *s, const char *bytes, size_t n, struct err *err) {
    return rfb_viewer_take(s->viewer, (const uint8_t *)bytes, n, err);
}
#define VIEWER_SENDS(s, text, err) scene_take(s, text, sizeof(text) - 1, err)

static int scene_show(struct scene *s, const char *bytes, size_t n, struct err *err) {
    return rfb_take(s->server, (const uint8_t *)bytes, n, err);
}
#define SERVER_SENDS(s, text, err) scene_show(s, text, sizeof(text) - 1, err)

static void shown_is(const struct scene *s, const char *want, size_t n) {
    assert_int_equal(s->shown.len, n);
    assert_memory_equal(s->shown.data, want, n);
}
#define SHOWN_IS(s, text) shown_is(s, text, sizeof(text) - 1)

static void the_handshake_has_nothing_of_the_machine_but_its_size(void **state) {
    struct scene s;
    struct err err;
    (void)state;
    for (size_t step = 1; step < sizeof(HELLO); step++) {
        scene_begin(&s, 4096);
        for (size_t i = 0; i < sizeof(HELLO) - 1; i += step) {
            size_t left = sizeof(HELLO) - 1 - i;
            assert_int_equal(scene_take(&s, &HELLO[i], step < left ? step : left, &err), 0);
        }
        SHOWN_IS(&s, VERSION "\1\1\0\0\0\0\0\4\0\2" FORMAT "\0\0\0\7desktop");
        assert_int_equal(rfb_out(s.server)->len, 0);
        scene_end(&s);
    }
}

static void only_keys_the_pointer_and_questions_reach_the_machine(void **state) {
    static const char sent[] = HELLO "\0\0\0\0" FORMAT "\2\0\0\2\0\0\0\7\xff\xff\xff\x11"
                                     "\3\1\0\1\0\0\0\3\0\2\4\1..\0\0\xff\r"
                                     "\6\0\0\0\0\0\0\6secret\5\1\0\3\0\1\5\0\xff\xff\xff\xff";
    static const char want[] = "\3\1\0\1\0\0\0\3\0\2\4\1\0\0\0\0\xff\r\5\1\0\3\0\1\5\0\0\3\0\1";
    struct scene s;
    struct err err;
    (void)state;
    for (size_t step = 1; step < sizeof(sent); step++) {
        scene_begin(&s, 4096);
        for (size_t i = 0; i < sizeof(sent) - 1; i += step) {
            size_t left = sizeof(sent) - 1 - i;
            assert_int_equal(scene_take(&s, sent + i, step < left ? step : left, &err), 0);
        }
        assert_int_equal(rfb_out(s.server)->len, sizeof(want) - 1);
        assert_memory_equal(rfb_out(s.server)->data, want, sizeof(want) - 1);
        scene_end(&s);
    }
}

static void only_pixels_reach_the_viewer(void **state) {
    static const char sent[] = "\2\1\0\0\0\0\1rrggbb\3...\0\0\0\3cut"
                               "\0.\0\2" RECT("\1", "\0", "\2", "\1", "\0") "aaa.bbb." RECT(
                                   "\0", "\1", "\1", "\1", "\0") "ccc.\2";
    static const char want[] = "\0\0\0\2" RECT("\1", "\0", "\2", "\1", "\0") "aaa.bbb." RECT(
        "\0", "\1", "\1", "\1", "\0") "ccc.";
    struct scene s;
    struct err err;
    (void)state;
    for (size_t step = 1; step < sizeof(sent); step++) {
        scene_begin(&s, 4096);
        assert_int_equal(VIEWER_SENDS(&s, HELLO, &err), 0);
        buf_drop(&s.shown, s.shown.len);
        for (size_t i = 0; i < sizeof(sent) - 1; i += step) {
            size_t left = sizeof(sent) - 1 - i;
            assert_int_equal(scene_show(&s, sent + i, step < left ? step : left, &err), 0);
            assert_true(s.shown.len <= i + step + 16);
        }
        SHOWN_IS(&s, want);
        scene_end(&s);
    }
}

static void refused(const char *bytes, size_t n, const char *why) {
    struct scene s;
    struct err err;
    scene_begin(&s, 4096);
    assert_int_equal(scene_take(&s, bytes, n, &err), -1);
    assert_non_null(strstr(err.text, why));
    assert_int_equal(VIEWER_SENDS(&s, "\5\0\0\0\0\0", &err), -1);
    assert_int_equal(rfb_out(s.server)->len, 0);
    scene_end(&s);
}
#define REFUSED(text, why) refused(text, sizeof(text) - 1, why)

static void unknown_messages_of_a_viewer_are_refused(void **state) {
    (void)state;
    REFUSED("RFB 003.003\n", "another version");
    REFUSED(VERSION "\2", "was not offered");
    REFUSED(HELLO "\1", "unknown type");
    REFUSED(HELLO "\7", "unknown type");
    REFUSED(HELLO "\xfb", "unknown type");
    REFUSED(HELLO "\0\0\0\0\x10\x10\0\1\0\x1f\0\x3f\0\x1f\x0b\5\0\0\0\0", "pixel format");
    REFUSED(HELLO "\3\0\0\1\0\0\0\4\0\2", "outside");
    REFUSED(HELLO "\3\0\xff\xff\xff\xff\xff\xff\xff\xff", "outside");
    REFUSED(HELLO "\6\0\0\0\xff\xff\xff\xff", "clipboard");
}

static void a_machine_can_send_only_what_was_asked_for(void **state) {
    static const char picture[] =
        "\0\0\0\1" RECT("\0", "\0", "\4", "\2", "\0") "................................";
    struct scene s;
    struct err err;
    size_t n = 0;
    (void)state;
    scene_begin(&s, 64 << 10);
    assert_int_equal(VIEWER_SENDS(&s, HELLO "\3\0\0\0\0\0\0\4\0\2", &err), 0);
    while (n < 64u << 20 && SERVER_SENDS(&s, picture, &err) == 0) {
        n += sizeof(picture) - 1;
        buf_drop(&s.shown, s.shown.len);
    }
    assert_in_range(n, sizeof(picture) - 1, 4u << 20);
    scene_end(&s);
    scene_begin(&s, 4096);
    assert_int_equal(VIEWER_SENDS(&s, HELLO, &err), 0);
    assert_int_equal(SERVER_SENDS(&s, "\0\0\0\1" RECT("\0", "\0", "\1", "\1", "\7"), &err), -1);
    assert_non_null(strstr(err.text, "an encoding"));
    scene_end(&s);
    scene_begin(&s, 60); /* the handshake fits, and nothing more */
    assert_int_equal(VIEWER_SENDS(&s, HELLO, &err), 0);
    assert_int_equal(SERVER_SENDS(&s, "\0\0\0\1" RECT("\0", "\0", "\1", "\1", "\0"), &err), -1);
    assert_non_null(strstr(err.text, "viewer takes"));
    scene_end(&s);
}

static void pixels_before_the_end_of_the_handshake_are_refused(void **state) {
    struct scene s;
    struct err err;
    (void)state;
    for (size_t n = 0; n < sizeof(HELLO) - 1; n++) {
        scene_begin(&s, 4096);
        assert_int_equal(scene_take(&s, HELLO, n, &err), 0);
        size_t before = s.shown.len;
        assert_int_equal(SERVER_SENDS(&s, "\2\0\0\0\1", &err), -1);
        assert_non_null(strstr(err.text, "nobody asked for"));
        assert_int_equal(s.shown.len, before);
        scene_end(&s);
    }
}

static void input_that_the_machine_does_not_read_is_limited(void **state) {
    struct scene s;
    struct err err;
    size_t n = 0;
    (void)state;
    scene_begin(&s, 4096);
    assert_int_equal(VIEWER_SENDS(&s, HELLO, &err), 0);
    while (VIEWER_SENDS(&s, "\5\0\0\0\0\0", &err) == 0)
        n++;
    assert_true(n > 1000 && rfb_out(s.server)->len <= RFB_OUT_MAX);
    assert_non_null(strstr(err.text, "reads"));
    scene_end(&s);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_handshake_has_nothing_of_the_machine_but_its_size),
        cmocka_unit_test(only_keys_the_pointer_and_questions_reach_the_machine),
        cmocka_unit_test(only_pixels_reach_the_viewer),
        cmocka_unit_test(unknown_messages_of_a_viewer_are_refused),
        cmocka_unit_test(a_machine_can_send_only_what_was_asked_for),
        cmocka_unit_test(pixels_before_the_end_of_the_handshake_are_refused),
        cmocka_unit_test(input_that_the_machine_does_not_read_is_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
