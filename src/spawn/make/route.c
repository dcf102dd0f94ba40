#include "spawn/make/route.h"

#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

void route_link_up(struct netlink *n, int device, const uint8_t *mac) {
    struct ifinfomsg link = {.ifi_index = device, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    netlink_begin(n, RTM_NEWLINK, NLM_F_ACK, &link, sizeof(link));
    if (mac)
        netlink_attr(n, IFLA_ADDRESS, mac, 6);
}

void route_address(struct netlink *n, int device, const uint8_t address[4], uint8_t prefix) {
    struct ifaddrmsg a = {
        .ifa_family = AF_INET,
        .ifa_prefixlen = prefix,
        .ifa_index = (uint32_t)device,
        .ifa_scope = device == ROUTE_LOOPBACK ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE,
    };
    netlink_begin(n, RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE, &a, sizeof(a));
    netlink_attr(n, IFA_LOCAL, address, 4);
}

static void begin_route(struct netlink *n, const struct rtmsg *kind, int device,
                        const uint8_t from[4]) {
    struct rtmsg r = *kind;
    r.rtm_family = AF_INET;
    r.rtm_table = RT_TABLE_LOCAL;
    r.rtm_protocol = RTPROT_STATIC;
    netlink_begin(n, RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE, &r, sizeof(r));
    netlink_attr(n, RTA_OIF, &(uint32_t){(uint32_t)device}, 4);
    netlink_attr(n, RTA_PREFSRC, from, 4);
}

void route_all_local(struct netlink *n) {
    static const uint8_t loopback[4] = {127, 0, 0, 1};
    begin_route(n, &(struct rtmsg){.rtm_scope = RT_SCOPE_HOST, .rtm_type = RTN_LOCAL},
                ROUTE_LOOPBACK, loopback);
}

void route_peer(struct netlink *n, int device, const uint8_t peer[4], const uint8_t from[4]) {
    begin_route(
        n, &(struct rtmsg){.rtm_scope = RT_SCOPE_LINK, .rtm_type = RTN_UNICAST, .rtm_dst_len = 32},
        device, from);
    netlink_attr(n, RTA_DST, peer, 4);
}
