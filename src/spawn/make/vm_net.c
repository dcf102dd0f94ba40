#include "spawn/make/vm_net.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/in.h>
#include <linux/netfilter.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "spawn/make/nft.h"
#include "spawn/make/route.h"
#include "spawn/weaken.h"

/* The addresses of base/wire/vm_address.h. */
static const uint8_t gateway[4] = {198, 18, 0, 1}, guest[4] = {198, 18, 0, 2};
static const uint8_t gateway_mac[6] = {0x02, 0xc6, 0x12, 0, 0, 1};

/*
 * A new network namespace inherits the IPv4 settings of the host, so each one that matters is set.
 * Optional ones do not exist on every kernel, or not for an ordinary user.
 */
static const struct {
    const char *path, *value;
    bool optional;
} settings[] = {
    {"sys/net/ipv4/ip_forward", "0", false},
    {"sys/net/ipv4/conf/all/rp_filter", "0", false},
    {"sys/net/ipv4/conf/default/rp_filter", "0", false},
    {"sys/net/ipv4/conf/all/route_localnet", "0", false},
    {"sys/net/ipv4/conf/default/route_localnet", "0", false},
    {"sys/net/ipv4/conf/all/accept_source_route", "0", false},
    {"sys/net/ipv4/conf/default/accept_source_route", "0", false},
    {"sys/net/ipv4/conf/all/accept_redirects", "0", false},
    {"sys/net/ipv4/conf/default/accept_redirects", "0", false},
    {"sys/net/ipv4/conf/all/arp_ignore", "0", false},
    {"sys/net/ipv4/conf/default/arp_ignore", "0", false},
    {"sys/net/ipv4/conf/all/proxy_arp", "0", false},
    {"sys/net/ipv4/conf/default/proxy_arp", "0", false},
    /* A guest could fill the log of the host with packets from impossible addresses. */
    {"sys/net/ipv4/conf/all/log_martians", "0", false},
    {"sys/net/ipv4/conf/default/log_martians", "0", false},
    /* Refuse every packet with an ICMP error: the default is a few per second. */
    {"sys/net/ipv4/icmp_ratemask", "0", true},
    /* Incomplete fragments are in the memory of the host. */
    {"sys/net/ipv4/ipfrag_low_thresh", "196608", true},
    {"sys/net/ipv4/ipfrag_high_thresh", "262144", true},
    {"sys/net/ipv6/conf/all/disable_ipv6", "1", true},
    {"sys/net/ipv6/conf/default/disable_ipv6", "1", true},
};

/* What vm_net_open() was doing, for its error. */
enum stage { STAGE_NAMESPACE, STAGE_SETTINGS, STAGE_RULES, STAGE_TAP, STAGE_ROUTES };

struct filling {
    int host;
    int tap;
    enum stage stage;
};

static int write_settings(struct netns_maker *maker) {
    int proc = netns_settings(maker);
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
        int r = write_file_at(proc, settings[i].path, settings[i].value);
        if (r < 0 && !(settings[i].optional && (r == -ENOENT || r == -EACCES || r == -EPERM)))
            return r;
    }
    return 0;
}

/* A TCP connection to this port of the gateway reaches a listener there. */
static void put_door(struct netlink *n, uint16_t port) {
    size_t rule = nft_rule(n, "in");
    nft_match_protocol(n, NFT_CMP_EQ, IPPROTO_TCP);
    nft_match_destination(n, NFT_CMP_EQ, gateway);
    nft_match_port(n, NFT_CMP_EQ, port);
    nft_verdict(n, NF_ACCEPT);
    netlink_close(n, rule);
}

static void put_prerouting(struct netlink *n) {
    nft_chain(n, "in", NF_INET_PRE_ROUTING, NFT_PRIORITY_MANGLE);
    size_t rule = nft_rule(n, "in");
    nft_match_source(n, NFT_CMP_NEQ, guest);
    nft_verdict(n, NF_DROP);
    netlink_close(n, rule);

    put_door(n, NETNS_DNS_PORT);
    put_door(n, NETNS_PROXY_PORT);

    rule = nft_rule(n, "in");
    nft_match_protocol(n, NFT_CMP_EQ, IPPROTO_TCP);
    nft_match_outside(n);
    nft_tproxy(n, netns_loopback, NETNS_STEERED_PORT);
    netlink_close(n, rule);
}

static void put_input(struct netlink *n) {
    nft_chain(n, "local", NF_INET_LOCAL_IN, NFT_PRIORITY_FILTER);
    size_t rule = nft_rule(n, "local");
    nft_match_protocol(n, NFT_CMP_EQ, IPPROTO_TCP);
    nft_verdict(n, NF_ACCEPT);
    netlink_close(n, rule);

    rule = nft_rule(n, "local");
    nft_match_protocol(n, NFT_CMP_EQ, IPPROTO_UDP);
    nft_match_destination(n, NFT_CMP_EQ, gateway);
    nft_match_port(n, NFT_CMP_EQ, NETNS_DNS_PORT);
    nft_verdict(n, NF_ACCEPT);
    netlink_close(n, rule);

    rule = nft_rule(n, "local");
    nft_reject(n);
    netlink_close(n, rule);
}

/*
 * table ip carrel {
 *   chain in      { type filter hook prerouting priority mangle
 *                   ip saddr != 198.18.0.2 drop
 *                   ip daddr 198.18.0.1 tcp dport 53 accept
 *                   ip daddr 198.18.0.1 tcp dport 3128 accept
 *                   meta l4proto tcp ip daddr != 127.0.0.0/8 tproxy to 127.0.0.1:3129 }
 *   chain local   { type filter hook input priority filter
 *                   meta l4proto tcp accept
 *                   ip daddr 198.18.0.1 udp dport 53 accept
 *                   reject with icmp admin-prohibited }
 *   chain forward { type filter hook forward priority filter
 *                   drop }
 * }
 * The kernel reassembles fragments before these rules, because tproxy asks for that.
 */
static int put_rules(void) {
    struct netlink n = {.used = 0};
    nft_begin(&n);
    put_prerouting(&n);
    put_input(&n);
    nft_chain(&n, "forward", NF_INET_FORWARD, NFT_PRIORITY_FILTER);
    size_t rule = nft_rule(&n, "forward");
    nft_verdict(&n, NF_DROP);
    netlink_close(&n, rule);
    return nft_send(&n);
}

/*
 * The descriptor belongs to the network namespace in which it was opened and keeps it alive. The
 * device ends with its last descriptor.
 */
static int open_tap(int host) {
    struct ifreq r = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR, .ifr_name = "tap0"};
    int fd DEFER_CLOSE = openat(host, "dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &r) < 0)
        return -errno;
    return TAKE_FD(fd);
}

/*
 * Both routes are in the table `local`. With the second one in a table of its own, the kernel does
 * not send the ICMP errors of refused packets.
 */
static int put_routes(void) {
    struct netlink n = {.used = 0};
    int tap = (int)if_nametoindex("tap0");
    if (!tap)
        return -errno;
    route_link_up(&n, ROUTE_LOOPBACK, NULL);
    route_link_up(&n, tap, gateway_mac);
    route_address(&n, tap, gateway, 30);
    route_peer(&n, tap, guest, gateway);
    route_all_local(&n);
    return netlink_send(&n, NETLINK_ROUTE);
}

/* Adds the rules before the device: if the rules fail, nothing was ever let through. */
static int fill(struct netns_maker *maker, void *arg) {
    struct filling *f = arg;
    f->stage = STAGE_SETTINGS;
    int r = write_settings(maker);
    if (r < 0)
        return r;
    f->stage = STAGE_RULES;
    r = weakened("tproxy") ? -ENOENT : put_rules();
    if (r < 0)
        return r;
    f->stage = STAGE_TAP;
    f->tap = r = open_tap(f->host);
    if (r < 0)
        return r;
    f->stage = STAGE_ROUTES;
    return put_routes();
}

static int explain_tap(struct err *err, int r) {
    switch (r) {
    case -ENOENT:
    case -ENODEV:
    case -ENXIO:
        err_set(err, ERR_UNSUPPORTED,
                "this host has no /dev/net/tun, which the network of a vm needs");
        return err_remedy(err, "load it with 'modprobe tun'; in a container, add --device "
                               "/dev/net/tun");
    case -EACCES:
    case -EPERM:
        err_set(err, ERR_UNSUPPORTED,
                "/dev/net/tun, which the network of a vm needs, cannot be opened: %s",
                strerror(-r));
        return err_remedy(err, "allow it with 'chmod 666 /dev/net/tun'; in a container, add "
                               "--device /dev/net/tun");
    default:
        return err_num(err, r, "cannot create the tap device of a vm");
    }
}

static int explain(struct err *err, enum stage stage, int r) {
    switch (stage) {
    case STAGE_RULES:
        if (r != -ENOENT && r != -EOPNOTSUPP && r != -EPROTONOSUPPORT)
            break;
        err_set(err, ERR_UNSUPPORTED,
                "this kernel has no nf_tables with tproxy and reject, which the network of a vm "
                "needs");
        return err_remedy(err, "load them with 'modprobe -a nft_tproxy nft_reject_ipv4'");
    case STAGE_TAP:
        return explain_tap(err, r);
    default:
        break;
    }
    static const char *const what[] = {
        [STAGE_NAMESPACE] = "network namespace",
        [STAGE_SETTINGS] = "network settings",
        [STAGE_RULES] = "packet filter rules",
        [STAGE_TAP] = "tap device",
        [STAGE_ROUTES] = "routes",
    };
    return err_num(err, r, "cannot create the %s of a vm", what[stage]);
}

int vm_net_open(struct netns_maker *maker, int host, struct vm_net *ret, struct err *err) {
    struct filling f = {.host = host, .tap = -1};
    int ns = netns_make(maker, fill, &f);
    if (ns < 0) {
        close_fd(&f.tap);
        return explain(err, f.stage, ns);
    }
    *ret = (struct vm_net){.ns = ns, .tap = f.tap};
    return 0;
}

void vm_net_close(struct vm_net *net) {
    close_fd(&net->ns);
    close_fd(&net->tap);
}

int vm_net_find(int pidfd, int tap, struct vm_net *ret) {
    int fd DEFER_CLOSE = (int)syscall(SYS_pidfd_getfd, pidfd, tap, 0);
    struct ifreq r;
    /* Any socket has a network namespace; only a tap descriptor answers TUNGETIFF. */
    if (fd < 0 || ioctl(fd, TUNGETIFF, &r) < 0)
        return -errno;
    int ns = ioctl(fd, SIOCGSKNS, 0);
    if (ns < 0)
        return -errno;
    fcntl(ns, F_SETFD, FD_CLOEXEC);
    *ret = (struct vm_net){.ns = ns, .tap = TAKE_FD(fd)};
    return 0;
}

int vm_net_listen(const struct netns_maker *maker, int ns, int ret[NETNS_FDS]) {
    return netns_listen(maker, ns, gateway, ret);
}

int vm_net_dial(const struct netns_maker *maker, int ns, uint16_t port) {
    return netns_dial(maker, ns, guest, port);
}
