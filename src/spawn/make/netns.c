#include "spawn/make/netns.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "spawn/make/mounts.h"
#include "spawn/make/netlink.h"
#include "spawn/make/nft.h"
#include "spawn/make/route.h"
#include "spawn/weaken.h"

enum { BACKLOG = 1024 };

/*
 * The address of each box, outside 127/8: without such an address, getaddrinfo(AI_ADDRCONFIG)
 * returns no IPv4 addresses. It is from the benchmark range (RFC 2544), which no network uses, like
 * the synthetic addresses of the gate.
 */
static const uint8_t own_address[4] = {198, 18, 0, 1};
const uint8_t netns_loopback[4] = {127, 0, 0, 1};

static int set_up(bool steered) {
    struct netlink n = {.used = 0};
    route_link_up(&n, ROUTE_LOOPBACK, NULL);
    route_address(&n, ROUTE_LOOPBACK, own_address, 32);
    if (steered)
        route_all_local(&n);
    return netlink_send(&n, NETLINK_ROUTE);
}

/*
 * table ip carrel {
 *   chain in  { type filter hook prerouting priority mangle
 *               meta l4proto tcp ip daddr != 127.0.0.0/8 tproxy to 127.0.0.1:3129 }
 *   chain out { type filter hook output priority filter
 *               meta l4proto != tcp ip daddr != 127.0.0.0/8 drop }
 * }
 * A packet dropped on output makes the sending call fail with EPERM.
 */
static int steer(void) {
    struct netlink n = {.used = 0};
    nft_begin(&n);
    nft_chain(&n, "in", NF_INET_PRE_ROUTING, NFT_PRIORITY_MANGLE);
    size_t rule = nft_rule(&n, "in");
    nft_match_protocol(&n, NFT_CMP_EQ, IPPROTO_TCP);
    nft_match_outside(&n);
    nft_tproxy(&n, netns_loopback, NETNS_STEERED_PORT);
    netlink_close(&n, rule);

    nft_chain(&n, "out", NF_INET_LOCAL_OUT, NFT_PRIORITY_FILTER);
    rule = nft_rule(&n, "out");
    nft_match_protocol(&n, NFT_CMP_NEQ, IPPROTO_TCP);
    nft_match_outside(&n);
    nft_verdict(&n, NF_DROP);
    netlink_close(&n, rule);
    return nft_send(&n);
}

int netns_settings(struct netns_maker *maker) {
    enum { OFTEN = 128 };
    if (maker->set == OFTEN) {
        close_fd(&maker->settings);
        maker->set = 0;
    }
    if (maker->set++ == 0)
        maker->settings =
            mount_new("proc", NULL, 0, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    return maker->settings >= 0 ? maker->settings : maker->proc;
}

/*
 * Allows all ports to every user. Root of the box has no rights in this network namespace, so it
 * could not bind port 80 otherwise.
 */
static int free_ports(struct netns_maker *maker) {
    return write_file_at(netns_settings(maker), "sys/net/ipv4/ip_unprivileged_port_start", "0");
}

/* Adds the packet filter rules before the routes: if the rules fail, no route bypasses them. */
static int furnish(struct netns_maker *maker, void *arg) {
    (void)arg;
    int r = maker->plain ? 0 : weakened("tproxy") ? -ENOENT : steer();
    if (r < 0 && (maker->steers || r == -ENOMEM || r == -ENOBUFS || r == -EMFILE))
        return r;
    maker->steers |= r == 0 && !maker->plain;
    if (r < 0) {
        maker->plain = true;
        maker->why_plain = r;
    }
    r = set_up(!maker->plain);
    return r < 0 ? r : free_ports(maker);
}

int netns_make(struct netns_maker *maker, int (*fill)(struct netns_maker *maker, void *arg),
               void *arg) {
    if (unshare(CLONE_NEWNET) < 0)
        return -errno;
    int r = fill(maker, arg);
    /* Gets a descriptor of the new network namespace from a socket, because that needs no /proc. */
    int s DEFER_CLOSE = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int ns DEFER_CLOSE = s < 0 ? -1 : ioctl(s, SIOCGSKNS, 0);
    int e = errno;
    if (setns(maker->home, CLONE_NEWNET) < 0)
        return -errno;
    if (r < 0 || ns < 0)
        return r < 0 ? r : -e;
    fcntl(ns, F_SETFD, FD_CLOEXEC);
    return TAKE_FD(ns);
}

int netns_new(struct netns_maker *maker) {
    return netns_make(maker, furnish, NULL);
}

/* ---- listeners ---- */

static const struct {
    int type;
    uint16_t port;
    bool transparent;
} doors[] = {
    [NETNS_STEERED] = {SOCK_STREAM, NETNS_STEERED_PORT, true},
    [NETNS_PROXY] = {SOCK_STREAM, NETNS_PROXY_PORT, false},
    [NETNS_DNS_UDP] = {SOCK_DGRAM, NETNS_DNS_PORT, false},
    [NETNS_DNS_TCP] = {SOCK_STREAM, NETNS_DNS_PORT, false},
};

static int open_door(enum netns_fd which, const uint8_t at[4]) {
    int on = 1;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(doors[which].port)};
    memcpy(&a.sin_addr, doors[which].transparent ? netns_loopback : at, sizeof(a.sin_addr));
    /*
     * SO_REUSEADDR is set only for stream sockets: with it, several datagram sockets could share a
     * port.
     */
    bool stream = doors[which].type == SOCK_STREAM;
    int s DEFER_CLOSE = socket(AF_INET, doors[which].type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0 || (stream && setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0) ||
        (doors[which].transparent &&
         setsockopt(s, IPPROTO_IP, IP_TRANSPARENT, &on, sizeof(on)) < 0) ||
        bind(s, (struct sockaddr *)&a, sizeof(a)) < 0 || (stream && listen(s, BACKLOG) < 0))
        return -errno;
    return TAKE_FD(s);
}

/*
 * Opens a file with counters of the current network namespace; the descriptor belongs to that
 * namespace also later. Without IPv6, snmp is opened instead of snmp6.
 */
static int open_counters(const struct netns_maker *maker, enum netns_fd which) {
    int fd = which == NETNS_COUNTERS6
                 ? openat(maker->proc, "thread-self/net/snmp6", O_RDONLY | O_CLOEXEC)
                 : -1;
    if (fd < 0)
        fd = openat(maker->proc, "thread-self/net/snmp", O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int netns_listen(const struct netns_maker *maker, int ns, const uint8_t at[4], int ret[NETNS_FDS]) {
    int made[NETNS_FDS], count = 0, r = 0;
    if (setns(ns, CLONE_NEWNET) < 0)
        return -errno;
    for (; count < NETNS_FDS && r >= 0; count++)
        made[count] = r = count < NETNS_COUNTERS ? open_door((enum netns_fd)count, at)
                                                 : open_counters(maker, (enum netns_fd)count);
    if (setns(maker->home, CLONE_NEWNET) < 0 && r >= 0)
        r = -errno;
    if (r >= 0) {
        memcpy(ret, made, sizeof(made));
        return 0;
    }
    while (count--)
        if (made[count] >= 0)
            close(made[count]);
    return r;
}

int netns_dial(const struct netns_maker *maker, int ns, const uint8_t address[4], uint16_t port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    memcpy(&to.sin_addr, address, sizeof(to.sin_addr));
    if (setns(ns, CLONE_NEWNET) < 0)
        return -errno;
    int fd DEFER_CLOSE = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int r = fd < 0 ? -errno : 0;
    if (r == 0 && connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0 && errno != EINPROGRESS)
        r = -errno;
    if (setns(maker->home, CLONE_NEWNET) < 0 && r == 0)
        r = -errno;
    return r < 0 ? r : TAKE_FD(fd);
}
