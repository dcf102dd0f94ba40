#include "tests/unit/unit.h"

#include "gate/refused.h"

static const char snmp[] = "Ip: Forwarding DefaultTTL OutRequests OutDiscards OutNoRoutes OutFar\n"
                           "Ip: 2 64 31 7 18446744073709551615 5\n"
                           "Icmp: InMsgs OutDiscards\nIcmp: 1 99\n";
static const char snmp6[] = "Ip6InReceives                   \t235\n"
                            "Ip6OutNoRoutesAtAll             \t8\n"
                            "Ip6OutNoRoutes                  \t12\n";

static void counters_are_found_by_their_names(void **state) {
    (void)state;
    uint64_t now[REFUSED_KINDS];
    refused_read(snmp, snmp6, now);
    assert_int_equal(now[REFUSED_UDP], 7);
    assert_true(now[REFUSED_IPV4] == UINT64_MAX);
    assert_int_equal(now[REFUSED_IPV6], 12);
}

static void what_is_not_said_is_nothing(void **state) {
    (void)state;
    static const char *const odd[] = {
        "",
        "\n",
        "Ip: ",
        "Ip: OutDiscards",
        "Ip: OutDiscards\nIp: ",
        "Ip: A OutDiscards\nIp: 1",
        "Ip: A OutDiscards\nIp: 1\nUdp: 5 5",
        "Udp: OutDiscards\nUdp: 4",
        "Ip: OutDiscardsX\nIp: 4",
        "Ip6OutNoRoutes",
        "XIp6OutNoRoutes 4",
    };
    for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
        uint64_t now[REFUSED_KINDS];
        refused_read(odd[i], odd[i], now);
        for (int kind = 0; kind < REFUSED_KINDS; kind++)
            assert_int_equal(now[kind], 0);
    }
}

/* Cut anywhere, it says less, and nothing else. */
static void a_text_that_is_cut_says_no_more(void **state) {
    (void)state;
    for (size_t n = 0; n <= sizeof(snmp); n++) {
        char cut[sizeof(snmp) + 1];
        uint64_t now[REFUSED_KINDS];
        snprintf(cut, n + 1, "%s", snmp);
        refused_read(cut, "", now);
        assert_true(now[REFUSED_UDP] == 0 || now[REFUSED_UDP] == 7);
        assert_int_equal(now[REFUSED_IPV6], 0);
    }
}

UNIT_MAIN(cmocka_unit_test(counters_are_found_by_their_names),
          cmocka_unit_test(what_is_not_said_is_nothing),
          cmocka_unit_test(a_text_that_is_cut_says_no_more))
