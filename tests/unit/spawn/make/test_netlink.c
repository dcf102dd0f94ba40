#include "tests/unit/unit.h"

#include <errno.h>
#include <linux/netlink.h>
#include <string.h>

#include "spawn/make/netlink.h"

static struct nlmsghdr head_at(const struct netlink *n, size_t at) {
    struct nlmsghdr h;
    memcpy(&h, n->bytes + at, sizeof(h));
    return h;
}

static struct nlattr attr_at(const struct netlink *n, size_t at) {
    struct nlattr a;
    memcpy(&a, n->bytes + at, sizeof(a));
    return a;
}

static void a_message_counts_what_is_added_to_it(void **state) {
    (void)state;
    struct netlink n = {.used = 0};
    netlink_begin(&n, 16, NLM_F_ACK, "body", 4);
    assert_int_equal(head_at(&n, 0).nlmsg_len, 20);
    netlink_attr(&n, 3, "abcde", 5);
    assert_int_equal(attr_at(&n, 20).nla_len, 9); /* its own, without the padding */
    assert_int_equal(head_at(&n, 0).nlmsg_len, 32);
    assert_int_equal(n.answers, 1);
}

static void messages_follow_each_other(void **state) {
    (void)state;
    struct netlink n = {.used = 0};
    netlink_begin(&n, 16, 0, "", 0);
    netlink_begin(&n, 17, NLM_F_ACK | NLM_F_CREATE, "four", 4);
    assert_int_equal(head_at(&n, 0).nlmsg_len, 16);
    assert_int_equal(head_at(&n, 16).nlmsg_type, 17);
    assert_int_equal(head_at(&n, 16).nlmsg_flags, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE);
    assert_int_equal(head_at(&n, 16).nlmsg_seq, 2);
    assert_int_equal(n.answers, 1);
}

static void a_nest_holds_what_was_written_until_it_is_closed(void **state) {
    (void)state;
    struct netlink n = {.used = 0};
    netlink_begin(&n, 16, 0, "", 0);
    size_t outer = netlink_open(&n, 1), inner = netlink_open(&n, 2);
    netlink_be32(&n, 5, 0x01020304);
    netlink_close(&n, inner);
    netlink_text(&n, 6, "x");
    netlink_close(&n, outer);
    assert_int_equal(attr_at(&n, inner).nla_len, 12);
    assert_int_equal(attr_at(&n, outer).nla_len, n.used - outer);
    assert_int_equal(attr_at(&n, outer).nla_type, 1 | NLA_F_NESTED);
    assert_memory_equal(n.bytes + inner + 8, "\1\2\3\4", 4);
}

static void what_does_not_fit_is_not_sent(void **state) {
    (void)state;
    static struct netlink n;
    char large[NETLINK_MAX_BYTES] = "";
    netlink_begin(&n, 16, NLM_F_ACK, "", 0);
    size_t used = n.used;
    netlink_attr(&n, 1, large, sizeof(large));
    assert_int_equal(n.used, used);
    assert_int_equal(netlink_send(&n, NETLINK_ROUTE), -E2BIG);
}

UNIT_MAIN(cmocka_unit_test(a_message_counts_what_is_added_to_it),
          cmocka_unit_test(messages_follow_each_other),
          cmocka_unit_test(a_nest_holds_what_was_written_until_it_is_closed),
          cmocka_unit_test(what_does_not_fit_is_not_sent))
