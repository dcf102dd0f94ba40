/*
 * The network namespace of a box, whose only way out is the gate.
 *
 * Every address outside 127.0.0.0/8 is local. The kernel redirects (TPROXY) all TCP connections to
 * a listener at 127.0.0.1:3129, whatever their port. The gate holds that listener and gets the
 * original target from getsockname(). UDP, ICMP and IPv6 are refused at the sender. A box cannot
 * change this, because the spawner's user namespace owns the network namespace. Without a listener
 * a connection is refused at once.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "spawn/make/reuse.h"

enum { NETNS_STEERED_PORT = 3129, NETNS_PROXY_PORT = 3128, NETNS_DNS_PORT = 53 };

struct netns_maker {
    int home;     /* the spawner's own network namespace */
    int proc;     /* descriptor of /proc */
    int settings; /* descriptor of another procfs, if `set` is not 0; `set` counts its uses */
    unsigned set;
    /* redirection worked before, so that a later failure does not mean that the kernel lacks it */
    bool steers;
    bool plain;    /* this kernel cannot redirect: only the explicit proxy works */
    int why_plain; /* the -errno of the failed redirection */
    struct netns_reuse reuse;
};

/*
 * Creates a network namespace with loopback up. Returns a descriptor or -errno. The first call
 * tests whether the kernel can redirect connections.
 */
int netns_new(struct netns_maker *maker);
/*
 * Creates a network namespace that `fill` configures; it runs inside and returns 0 or -errno.
 * Returns a descriptor or -errno.
 */
int netns_make(struct netns_maker *maker, int (*fill)(struct netns_maker *maker, void *arg),
               void *arg);

/*
 * Returns a descriptor of a procfs for network settings, or of /proc. A procfs keeps an entry for
 * each network namespace whose settings were opened through it, and searches these entries one by
 * one. So a new procfs is mounted now and then.
 */
int netns_settings(struct netns_maker *maker);

/*
 * Descriptors of the gate, in this order: redirected connections, the explicit proxy, DNS over UDP
 * and TCP; and two kernel counter files, /proc/net/snmp and snmp6, which count the packets that the
 * kernel refused.
 */
enum netns_fd {
    NETNS_STEERED,
    NETNS_PROXY,
    NETNS_DNS_UDP,
    NETNS_DNS_TCP,
    NETNS_COUNTERS,
    NETNS_COUNTERS6,
    NETNS_FDS
};

extern const uint8_t netns_loopback[4]; /* 127.0.0.1 */

/*
 * Opens the descriptors of enum netns_fd in a network namespace; the caller owns them. at: the
 * address of the explicit proxy and of DNS. Returns 0 or -errno.
 */
int netns_listen(const struct netns_maker *maker, int ns, const uint8_t at[4], int ret[NETNS_FDS]);
/*
 * Returns a socket that is connected or connecting to a port of this address, from the network
 * namespace `ns`, or -errno.
 */
int netns_dial(const struct netns_maker *maker, int ns, const uint8_t address[4], uint16_t port);
