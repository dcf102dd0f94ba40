#include "tests/unit/unit.h"

#include <string.h>

#include "base/defer.h"
#include "base/err.h"
#include "base/utf8.h"
#include "io/http_uri.h"

static struct http_text text(const char *s) {
    return (struct http_text){s, strlen(s)};
}

static void segments_are_decoded_strictly(void **state) {
    static const struct {
        const char *raw, *want; /* NULL: refused */
    } table[] = {
        {"", ""},         {"m-abc", "m-abc"}, {"a%20b+c", "a b+c"}, {"%C3%a9", "\xc3\xa9"},
        {"%2e%2e", ".."}, {"%", NULL},        {"%4", NULL},         {"a%4", NULL},
        {"%g0", NULL},    {"%0g", NULL},      {"%00", NULL},        {"a%2fb", NULL},
        {"%ff", NULL},    {"%c3", NULL},      {"%ed%a0%80", NULL},  {"0123456789abcdef", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        char to[16];
        size_t n = 99;
        int r = http_decode_segment(text(table[i].raw), to, sizeof(to), &n);
        assert_int_equal(r, table[i].want ? 0 : -1);
        if (table[i].want) {
            assert_string_equal(to, table[i].want);
            assert_int_equal(n, strlen(table[i].want));
        }
    }
}

static void a_path_falls_into_segments(void **state) {
    struct http_text rest = text("/v1//machines/"), part;
    const char *want[] = {"v1", "", "machines", ""};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        assert_true(http_path_next(&rest, &part));
        assert_true(http_text_is(part, want[i]));
    }
    assert_false(http_path_next(&rest, &part));
    rest = text("*");
    assert_false(http_path_next(&rest, &part));
}

static void a_parameter_is_found_or_refused(void **state) {
    static const struct {
        const char *query;
        int r;
        const char *want;
    } table[] = {
        {"", 0, NULL},
        {"k=v", 1, "v"},
        {"a=b&k=x+y%2Fz&c", 1, "x y/z"},
        {"%6b=v", 1, "v"},
        {"k", 1, ""},
        {"k=a=b", 1, "a=b"},
        {"&&k=&", 1, ""},
        {"kk=v&K=v", 0, NULL},
        {"k=1&k=2", -1, NULL},
        {"k=1&%6B=1", -1, NULL},
        {"k=%zz", -1, NULL},
        {"k=%00", -1, NULL},
        {"k=%ff", -1, NULL},
        {"%ff=1&k=2", -1, NULL},
        {"%c3=1&k=2", -1, NULL},
        {"%00=1&k=2", -1, NULL},
        {"%=1&k=2", -1, NULL},
        {"k=0123456789abcdef", -1, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        char to[16] = "";
        size_t n;
        assert_int_equal(http_query_get(text(table[i].query), "k", to, sizeof(to), &n), table[i].r);
        if (table[i].want)
            assert_string_equal(to, table[i].want);
    }
}

static void what_is_encoded_decodes_to_the_same(void **state) {
    struct buf b DEFER(buf_done) = BUF(64);
    const char *plain = "a/b c?\xc3\xa9~%";
    char to[64];
    size_t n;
    (void)state;
    assert_true(http_put_encoded(&b, text(plain)));
    assert_string_equal(b.data, "a%2Fb%20c%3F%C3%A9~%25");
    assert_int_equal(http_decode_query(text(b.data), to, sizeof(to), &n), 0);
    assert_string_equal(to, plain);
    b.max = b.len + 2;
    assert_false(http_put_encoded(&b, text("//")));
    assert_string_equal(b.data, "a%2Fb%20c%3F%C3%A9~%25");
}

/* Against a decoder of the plainest kind: every sequence of up to three bytes of interest. */
static int plain_valid(const uint8_t *p, size_t n) {
    for (size_t i = 0; i < n;) {
        size_t len = p[i] < 0x80       ? 1
                     : p[i] >> 5 == 6  ? 2
                     : p[i] >> 4 == 14 ? 3
                     : p[i] >> 3 == 30 ? 4
                                       : 0;
        if (len == 0 || i + len > n)
            return 0;
        uint32_t c = len == 1 ? p[i] : p[i] & (0x7fu >> len);
        for (size_t k = 1; k < len; k++) {
            if (p[i + k] >> 6 != 2)
                return 0;
            c = c << 6 | (p[i + k] & 63);
        }
        static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
        if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
            return 0;
        i += len;
    }
    return 1;
}

static void utf8_is_what_a_plain_decoder_says(void **state) {
    static const uint8_t edge[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf,
                                   0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee,
                                   0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff};
    enum { N = sizeof(edge) };
    (void)state;
    for (size_t i = 0; i < (size_t)N * N * N * N; i++) {
        uint8_t s[4] = {edge[i % N], edge[i / N % N], edge[i / N / N % N], edge[i / N / N / N]};
        assert_int_equal(utf8_valid(s, 4), plain_valid(s, 4));
    }
}

#define CASE(f) cmocka_unit_test(f)
UNIT_MAIN(CASE(segments_are_decoded_strictly), CASE(a_path_falls_into_segments),
          CASE(a_parameter_is_found_or_refused), CASE(what_is_encoded_decodes_to_the_same),
          CASE(utf8_is_what_a_plain_decoder_says))
