#include "tests/unit/unit.h"

#include <string.h>

#include "base/defer.h"
#include "cli/text/modes.h"

static struct modes after(const char *output) {
    struct modes m = {0};
    for (const char *at = output; *at; at++) /* a byte at a time, as badly as a stream can be cut */
        modes_feed(&m, at, 1);
    return m;
}

static bool puts_away(const char *output, const char *wanted) {
    struct buf b DEFER(buf_done) = BUF(MODES_WRITTEN_MAX);
    struct modes m = after(output);
    modes_put_away(&m, &b);
    return strstr(b.data, wanted);
}

static bool puts_back(const char *output, const char *wanted) {
    struct buf b DEFER(buf_done) = BUF(MODES_WRITTEN_MAX);
    struct modes m = after(output);
    modes_put_back(&m, &b);
    return strstr(b.data, wanted);
}

static void a_mode_is_switched_off_and_on_again(void **state) {
    (void)state;
    assert_true(puts_away("\x1b[?1000h", "\x1b[?1000l"));
    assert_true(puts_back("\x1b[?1000h", "\x1b[?1000h"));
    assert_false(puts_back("\x1b[?1000h\x1b[?1000l", "1000"));
    assert_true(puts_away("\x1b[?25l", "\x1b[?25h"));
    assert_true(puts_back("\x1b[?25l", "\x1b[?25l"));
    assert_true(puts_back("\x1b[?1002;1006;2004h", "\x1b[?2004h"));
    assert_true(puts_away("\x1b[>4;2m", "\x1b[>4;0m"));
    assert_true(puts_back("\x1b[>4;2m", "\x1b[>4;2m"));
    assert_false(puts_back("\x1b[>4;2m\x1b[>4m", "4;2"));
}

static void the_alternate_screen_is_entered_only_from_the_other_one(void **state) {
    (void)state;
    assert_true(puts_away("text", "\x1b[?1049h"));
    assert_true(puts_back("text", "\x1b[?1049l"));
    assert_false(puts_away("\x1b[?1049h", "1049"));
    assert_false(puts_back("\x1b[?1049h", "1049"));
    assert_true(puts_away("\x1b[?1049h\x1b[?1049l", "\x1b[?1049h"));
}

/* As nothing was read: the command can change the terminal by sequences that are not known here. */
static void every_state_is_ordinary_for_a_question(void **state) {
    (void)state;
    const char *const wanted[] = {"\x18\x1b\\\x1b<",
                                  "\x1b[4i\x1b[?4i",
                                  "\x1b[0$}",
                                  "\x1b[0$~",
                                  "\x1b[?1046h",
                                  "\x1b[?1l",
                                  "\x1b[?66l",
                                  "\x1b[?5l",
                                  "\x1b[?6l",
                                  "\x1b[?69l",
                                  "\x1b[?7h",
                                  "\x1b[?45l",
                                  "\x1b[?25h",
                                  "\x1b[?1000l",
                                  "\x1b[?1003l",
                                  "\x1b[?2004l",
                                  "\x1b[?2026l",
                                  "\x1b[?2048l",
                                  "\x1b>",
                                  "\x1b[>4;0m",
                                  "\x1b[2l\x1b[4l",
                                  "\x1b[20l",
                                  "\x1b[12h",
                                  "\x1b[0m",
                                  "\x1b[0\"q",
                                  "\x1b(B\x1b)B\x0f",
                                  "\x1b]104\x1b\\",
                                  "\x1b]110\x1b\\",
                                  "\x1b]111\x1b\\",
                                  "\x1b]112\x1b\\",
                                  "\x1b]R\x1b\\",
                                  "\x1b[>0u",
                                  "\x1b[r",
                                  "\x1b[H\x1b[2J",
                                  "\x1b[22;2t\x1b]2;" MODES_TITLE "\x1b\\"};
    for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++)
        assert_true(puts_away("", wanted[i]));
    assert_true(puts_back("", "\x1b[23;2t"));
}

static void margins_and_the_keypad_come_back(void **state) {
    (void)state;
    assert_true(puts_back("\x1b[3;9r", "\x1b[3;9r\x1b[?1049l"));
    assert_false(puts_back("\x1b[3;9r\x1b[r", ";9r"));
    assert_false(puts_back("\x1b[?3;9r", ";9r"));
    assert_true(puts_back("\x1b[?69h\x1b[2;8s", "\x1b[2;8s"));
    assert_false(puts_back("\x1b[2;8s\x1b[?69h\x1b[1;0s\x1b[0;0s", "8s"));
    assert_true(puts_back("\x1b[4h", "\x1b[4h"));
    assert_false(puts_back("\x1b[4h\x1b[4l", "\x1b[4h"));
    assert_true(puts_back("\x1b=", "\x1b="));
    assert_false(puts_back("\x1b=\x1b>", "\x1b="));
}

static void a_reset_of_the_terminal_resets_its_modes(void **state) {
    (void)state;
    assert_false(puts_back("\x1b[?1000h\x1b"
                           "c",
                           "1000"));
}

static bool puts_first(const char *output, const char *wanted) {
    struct buf b DEFER(buf_done) = BUF(MODES_WRITTEN_MAX);
    struct modes m = after(output);
    modes_put_first(&m, &b);
    return strstr(b.data, wanted);
}

static void the_shell_gets_an_ordinary_terminal(void **state) {
    (void)state;
    assert_true(puts_first("\x1b[?1049h\x1b[?1000h", "\x1b[?1000l"));
    assert_true(puts_first("\x1b[?1049h", "\x1b[?1049l"));
    assert_false(puts_first("text", "1049"));
    assert_true(puts_first("\x1b[>1u\x1b[>5u", "\x1b[<2u"));
    assert_true(puts_first("\x1b[>1u\x1b[>5u\x1b[<u", "\x1b[<1u"));
    assert_false(puts_first("\x1b[>1u\x1b[<9u", "\x1b[<1"));
    assert_false(puts_first("text", "\x1b[?6l")); /* it would move the cursor */
    assert_true(puts_first("\x1b[3;9r", "\x1b[r"));
}

static void modes_in_a_title_do_not_count(void **state) {
    (void)state;
    assert_false(puts_back("\x1b]0;[?1000h\x07", "1000"));
    assert_false(puts_back("\x1bP[?1000h\x1b\\", "1000"));
    assert_true(puts_back("\x1b]0;x\x1b[?1000h", "1000")); /* ESC ends the title */
}

static void the_end_of_a_sequence_is_known(void **state) {
    (void)state;
    const char *const open[] = {"\x1b",         "\x1b[",        "\x1b[?10",
                                "\x1b]0;title", "\x1b]0;t\x1b", "\x1b("};
    const char *const between[] = {
        "", "text", "\x1b[0m", "\x1b]0;t\x07", "\x1b]0;t\x1b\\", "\x1b(B", "\x1b[1;2\x18", "\x1bM"};
    for (size_t i = 0; i < sizeof(open) / sizeof(*open); i++) {
        struct modes m = after(open[i]);
        assert_false(modes_is_between(&m));
    }
    for (size_t i = 0; i < sizeof(between) / sizeof(*between); i++) {
        struct modes m = after(between[i]);
        assert_true(modes_is_between(&m));
    }
}

static enum modes_key key(const char *bytes, size_t *ret_len) {
    return modes_key_read(bytes, strlen(bytes), ']', ret_len);
}

static void keys_are_read_in_every_form(void **state) {
    (void)state;
    const char *const pressed[] = {"\x1d",         "\x1b[93;5u",  "\x1b[93:125;5u",
                                   "\x1b[93;5:2u", "\x1b[93;69u", "\x1b[27;5;93~"};
    const char *const neutral[] = {"\x1b[93;5:3u", "\x1b[57442;5u"};
    const char *const other[] = {"]",          "\x1b",       "\x1b[A",
                                 "\x1b[92;5u", "\x1b[93;6u", "\x1b[93u",
                                 "\x1b[5;93~", "\x1b[93;5",  "\x1b[999999999999999999999;5u"};
    size_t len;
    for (size_t i = 0; i < sizeof(pressed) / sizeof(*pressed); i++) {
        assert_int_equal(key(pressed[i], &len), MODES_KEY_PRESSED);
        assert_int_equal(len, strlen(pressed[i]));
    }
    for (size_t i = 0; i < sizeof(neutral) / sizeof(*neutral); i++)
        assert_int_equal(key(neutral[i], &len), MODES_KEY_NEUTRAL);
    for (size_t i = 0; i < sizeof(other) / sizeof(*other); i++)
        assert_int_equal(key(other[i], &len), MODES_KEY_OTHER);
}

static void the_line_is_cut_at_the_width(void **state) {
    struct buf b DEFER(buf_done) = BUF(MODES_WRITTEN_MAX);
    (void)state;
    modes_put_line("abcdef", 3, &b);
    assert_non_null(strstr(b.data, "\x1b[7mabc\x1b[0m"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mode_is_switched_off_and_on_again),
        cmocka_unit_test(the_alternate_screen_is_entered_only_from_the_other_one),
        cmocka_unit_test(every_state_is_ordinary_for_a_question),
        cmocka_unit_test(margins_and_the_keypad_come_back),
        cmocka_unit_test(a_reset_of_the_terminal_resets_its_modes),
        cmocka_unit_test(the_shell_gets_an_ordinary_terminal),
        cmocka_unit_test(modes_in_a_title_do_not_count),
        cmocka_unit_test(the_end_of_a_sequence_is_known),
        cmocka_unit_test(keys_are_read_in_every_form),
        cmocka_unit_test(the_line_is_cut_at_the_width),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
