#include "tests/unit/unit.h"

#include <arpa/inet.h>

#include "gate/address.h"
#include "gate/name.h"
#include "gate/names.h"

static bool reads(const char *text, const char *wanted) {
    char name[NAME_SIZE];
    return name_read(text, strlen(text), name) && strcmp(name, wanted) == 0;
}

static void a_name_is_lower_case_without_its_last_dot(void **state) {
    (void)state;
    assert_true(reads("Example.COM.", "example.com"));
    assert_true(reads("a_b.xn--p1ai", "a_b.xn--p1ai"));
    assert_true(reads("db", "db"));
    assert_true(reads("1.2.3.4.example", "1.2.3.4.example"));
    assert_true(reads("3com", "3com"));
}

static void what_could_be_an_address_is_no_name(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",      ".",          "..",     "a..b",       "-a.b",  "a-.b",         "127.0.0.1",
        "127.1", "2130706433", "0x7f.1", "0x7f000001", "a.0x1", "017700000001", "a b",
        "a\tb",  "a/b",        "a:80",   "[::1]",      "::1",   "a\r\nb",       "\xc3\xa4.de",
        "a%2eb", "a,b",        "*.a",    ".a"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_false(reads(bad[i], bad[i]));
    char label[80], name[NAME_SIZE];
    memset(label, 'a', sizeof(label));
    assert_false(name_read(label, 64, name));
    assert_true(name_read(label, 63, name));
    assert_false(name_read("a\0b", 3, name));
}

static void a_name_is_below_its_suffix_only(void **state) {
    (void)state;
    assert_true(name_is_below("a.example.com", "example.com"));
    assert_true(name_is_below("a.b.example.com", "example.com"));
    assert_false(name_is_below("example.com", "example.com"));
    assert_false(name_is_below("badexample.com", "example.com"));
    assert_false(name_is_below("com", "example.com"));
}

static void addresses_are_told_apart(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum address_kind kind;
    } rows[] = {
        {"8.8.8.8", ADDRESS_PUBLIC},
        {"127.0.0.1", ADDRESS_LOOPBACK},
        {"127.255.255.254", ADDRESS_LOOPBACK},
        {"128.0.0.1", ADDRESS_PUBLIC},
        {"10.1.2.3", ADDRESS_PRIVATE},
        {"172.15.0.1", ADDRESS_PUBLIC},
        {"172.16.0.1", ADDRESS_PRIVATE},
        {"172.31.255.255", ADDRESS_PRIVATE},
        {"172.32.0.1", ADDRESS_PUBLIC},
        {"192.168.9.9", ADDRESS_PRIVATE},
        {"169.254.169.254", ADDRESS_METADATA},
        {"169.254.1.1", ADDRESS_LINK_LOCAL},
        {"100.100.100.200", ADDRESS_METADATA},
        {"100.64.0.1", ADDRESS_SHARED},
        {"100.128.0.1", ADDRESS_PUBLIC},
        {"0.0.0.0", ADDRESS_RESERVED},
        {"198.18.0.1", ADDRESS_RESERVED},
        {"224.0.0.1", ADDRESS_RESERVED},
        {"255.255.255.255", ADDRESS_RESERVED},
        {"240.0.0.1", ADDRESS_RESERVED},
        {"::1", ADDRESS_LOOPBACK},
        {"::", ADDRESS_RESERVED},
        {"::ffff:8.8.8.8", ADDRESS_MAPPED},
        {"::ffff:127.0.0.1", ADDRESS_MAPPED},
        {"::127.0.0.1", ADDRESS_RESERVED},
        {"64:ff9b::a9fe:a9fe", ADDRESS_MAPPED},
        {"2002:7f00:1::", ADDRESS_MAPPED},
        {"2001::1", ADDRESS_MAPPED},
        {"2001:db8::1", ADDRESS_RESERVED},
        {"fe80::1", ADDRESS_LINK_LOCAL},
        {"fd00:ec2::254", ADDRESS_METADATA},
        {"fd00::1", ADDRESS_PRIVATE},
        {"ff02::1", ADDRESS_RESERVED},
        {"2606:4700:4700::1111", ADDRESS_PUBLIC},
        {"4000::1", ADDRESS_RESERVED},
        {"fec0::1", ADDRESS_PRIVATE},
        {"169.254.170.2", ADDRESS_METADATA},
        {"169.254.169.253", ADDRESS_LINK_LOCAL},
        {"168.63.129.16", ADDRESS_METADATA},
        {"168.63.129.17", ADDRESS_PUBLIC},
        {"100.63.255.255", ADDRESS_PUBLIC},
        {"100.64.0.0", ADDRESS_SHARED},
        {"100.127.255.255", ADDRESS_SHARED},
        {"192.0.0.8", ADDRESS_RESERVED},
        {"192.0.1.1", ADDRESS_PUBLIC},
        {"192.0.2.1", ADDRESS_RESERVED},
        {"192.88.99.1", ADDRESS_RESERVED},
        {"198.17.255.255", ADDRESS_PUBLIC},
        {"198.19.255.255", ADDRESS_RESERVED},
        {"198.20.0.0", ADDRESS_PUBLIC},
        {"198.51.100.7", ADDRESS_RESERVED},
        {"203.0.113.7", ADDRESS_RESERVED},
        {"64:ff9b::7f00:1", ADDRESS_MAPPED},
        {"64:ff9b:1::a00:1", ADDRESS_MAPPED},
        {"fd00:ec2::253", ADDRESS_PRIVATE},
        {"fdff::1", ADDRESS_PRIVATE},
        {"fe00::1", ADDRESS_RESERVED},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct sockaddr_in6 six = {.sin6_family = AF_INET6};
        struct sockaddr_in four = {.sin_family = AF_INET};
        bool is6 = strchr(rows[i].text, ':');
        assert_int_equal(is6 ? inet_pton(AF_INET6, rows[i].text, &six.sin6_addr)
                             : inet_pton(AF_INET, rows[i].text, &four.sin_addr),
                         1);
        enum address_kind kind =
            address_kind_of(is6 ? (struct sockaddr *)&six : (struct sockaddr *)&four);
        if (kind != rows[i].kind)
            fail_msg("%s is %s", rows[i].text, address_kind_name(kind));
    }
}

static void an_address_has_one_text(void **state) {
    (void)state;
    char text[ADDRESS_TEXT_SIZE];
    assert_true(address_read("2001:DB8:0::1", 13, text));
    assert_string_equal(text, "2001:db8::1");
    assert_false(address_read("0177.0.0.1", 10, text));
    assert_false(address_read("127.1", 5, text));
    assert_false(address_read("1.2.3.4 ", 8, text));
}

static uint32_t kept[8];

static void keep(void *arg, uint32_t number, const char *name) {
    (void)arg;
    kept[number % 8] = (uint32_t)strlen(name);
}

static void a_name_keeps_its_address(void **state) {
    (void)state;
    struct names n = {.added = keep};
    uint32_t a = names_address(&n, "a.example"), b = names_address(&n, "bb.example");
    assert_int_equal(a, 0xc6120004);
    assert_int_equal(b, 0xc6120005);
    assert_int_equal(names_address(&n, "a.example"), a);
    assert_string_equal(names_find(&n, b), "bb.example");
    assert_null(names_find(&n, b + 1));
    assert_null(names_find(&n, 0xc6120003));
    assert_null(names_find(&n, 0x08080808));
    assert_int_equal(kept[1], 10);
    names_done(&n);
}

static void when_all_are_in_use_the_oldest_goes(void **state) {
    (void)state;
    struct names n = {.added = NULL};
    char name[32];
    uint32_t first = names_address(&n, "first");
    for (int i = 1; i < NAMES_MAX; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        names_address(&n, name);
    }
    assert_string_equal(names_find(&n, first), "first");
    assert_int_equal(names_address(&n, "one.more"), first);
    assert_string_equal(names_find(&n, first), "one.more");
    assert_int_not_equal(names_address(&n, "first"), first);
    names_done(&n);
}

static void what_was_kept_comes_back(void **state) {
    (void)state;
    struct names n = {.added = NULL};
    names_restore(&n, 7, "seven.example");
    names_restore(&n, NAMES_MAX, "too.far");
    names_restore(&n, 8, "Not A Name");
    names_restore(&n, 9, "seven.example");
    names_go_on(&n, 7);
    assert_int_equal(names_address(&n, "seven.example"), 0xc6120004 + 7);
    assert_int_equal(names_address(&n, "eight.example"), 0xc6120004 + 8);
    names_done(&n);
}

UNIT_MAIN(cmocka_unit_test(a_name_is_lower_case_without_its_last_dot),
          cmocka_unit_test(what_could_be_an_address_is_no_name),
          cmocka_unit_test(a_name_is_below_its_suffix_only),
          cmocka_unit_test(addresses_are_told_apart), cmocka_unit_test(an_address_has_one_text),
          cmocka_unit_test(a_name_keeps_its_address),
          cmocka_unit_test(when_all_are_in_use_the_oldest_goes),
          cmocka_unit_test(what_was_kept_comes_back))
