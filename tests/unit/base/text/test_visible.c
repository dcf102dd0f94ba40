/* Text that somebody has to judge hides nothing. */
#include "tests/unit/unit.h"

#include "base/defer.h"
#include "base/text/visible.h"

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

/* The data of Unicode 16: Cf, Zs, Zl, Zp, and Default_Ignorable_Code_Point; and what is blank. */
static void no_character_without_ink_stays(void **state) {
    static const uint32_t rows[][2] = {
        {0x80, 0xa0},       {0xad, 0xad},       {0x34f, 0x34f},     {0x600, 0x605},
        {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},
        {0x8e2, 0x8e2},     {0x115f, 0x1160},   {0x1680, 0x1680},   {0x17b4, 0x17b5},
        {0x180b, 0x180f},   {0x2000, 0x200f},   {0x2028, 0x202f},   {0x205f, 0x206f},
        {0x2800, 0x2800},   {0x3000, 0x3000},   {0x3164, 0x3164},   {0xfe00, 0xfe0f},
        {0xfeff, 0xfeff},   {0xffa0, 0xffa0},   {0xfff0, 0xfffb},   {0x110bd, 0x110bd},
        {0x110cd, 0x110cd}, {0x13430, 0x1343f}, {0x16fe4, 0x16fe4}, {0x1bca0, 0x1bca3},
        {0x1d159, 0x1d159}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (uint32_t c = rows[i][0]; c <= rows[i][1]; c++) {
            struct buf to DEFER(buf_done) = BUF(100);
            char bytes[4], want[16];
            size_t n = 0;
            if (c >= 0x10000) {
                bytes[n++] = (char)(0xf0 | c >> 18);
                bytes[n++] = (char)(0x80 | (c >> 12 & 0x3f));
            } else if (c >= 0x800) {
                bytes[n++] = (char)(0xe0 | c >> 12);
            }
            bytes[n] = (char)(c >= 0x800 ? 0x80 | (c >> 6 & 0x3f) : 0xc0 | c >> 6);
            bytes[++n] = (char)(0x80 | (c & 0x3f));
            snprintf(want, sizeof(want), "\\u{%x}", c);
            assert_true(visible_add(&to, bytes, n + 1));
            assert_string_equal(to.data, want);
        }
}

static void nothing_is_cut_unsaid(void **state) {
    struct buf to DEFER(buf_done) = BUF(8);
    (void)state;
    assert_false(visible_add(&to, "0123456789", 10));
}

UNIT_MAIN(cmocka_unit_test(everything_is_seen), cmocka_unit_test(no_character_without_ink_stays),
          cmocka_unit_test(nothing_is_cut_unsaid))
