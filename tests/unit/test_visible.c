/* Text that somebody has to judge hides nothing. */
#include "tests/unit/unit.h"

#include "base/defer.h"
#include "base/visible.h"

static void everything_is_seen(void **state) {
    static const struct {
        const char *text, *shown;
    } rows[] = {
        {"echo a b", "echo a b"},
        {"echo a   ; rm", "echo a\u00b7\u00b7\u00b7; rm"},
        {" a ", "\u00b7a\u00b7"},
        {"a\tb\nc\rd", "a\\u{9}b\\u{a}c\\u{d}d"},
        {"\x1b[2K", "\\u{1b}[2K"},
        {"a\u00a0b\u3000c\u200bd", "a\\u{a0}b\\u{3000}c\\u{200b}d"},
        {"a\u202eb\u2800\u3164", "a\\u{202e}b\\u{2800}\\u{3164}"},
        {"\u00b7", "\\u{b7}"},
        {"gr\u00fc\u00dfe \u4f60", "gr\u00fc\u00dfe \u4f60"},
        {"\xff\xc3", "\\xff\\xc3"},
        {"\xc0\xa0", "\\xc0\\xa0"},
        {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
        {"", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct buf to DEFER(buf_done) = BUF(1000);
        assert_true(visible_add(&to, rows[i].text, strlen(rows[i].text)));
        assert_string_equal(to.data ? to.data : "", rows[i].shown);
    }
}

static void nothing_is_cut_unsaid(void **state) {
    struct buf to DEFER(buf_done) = BUF(8);
    (void)state;
    assert_false(visible_add(&to, "0123456789", 10));
}

UNIT_MAIN(cmocka_unit_test(everything_is_seen), cmocka_unit_test(nothing_is_cut_unsaid))
