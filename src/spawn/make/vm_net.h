/*
 * The network of a vm: a network namespace with a tap device, whose only way out is the gate.
 *
 * The guest has the address 198.18.0.2; the tap device is its gateway, 198.18.0.1. The kernel
 * redirects (TPROXY) every TCP connection of the guest to the gate's listener, which gets the
 * original target from getsockname(), as in the network of a box (netns.h). Datagrams to port 53 of
 * the gateway reach the gate's DNS. All other IPv4 packets are refused with an ICMP error at once;
 * packets with another source address, and IPv6, are dropped. Nothing is forwarded.
 *
 * QEMU runs in another network namespace and has only the tap descriptor, so a guest that took QEMU
 * over can still only send frames. The tap descriptor also keeps the namespace alive. Both end with
 * the machine: a vm that boots again has the same network, and no other vm gets it.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "spawn/make/netns.h"

struct vm_net {
    int ns;
    int tap; /* for `-netdev tap,fd=N`, with IFF_VNET_HDR; non-blocking */
};

#define VM_NET_NONE ((struct vm_net){.ns = -1, .tap = -1})

/*
 * Creates the network of a vm. host: descriptor of the host's "/", for /dev/net/tun. The caller
 * owns both descriptors. `unsupported`, with the reason: the host has no /dev/net/tun, or its
 * kernel lacks a packet filter part; then a vm cannot have a network.
 */
int vm_net_open(struct netns_maker *maker, int host, struct vm_net *ret, struct err *err);
void vm_net_close(struct vm_net *net);

/*
 * Finds the network of a running vm again, for a spawner that did not create it: tap is the number
 * of the tap descriptor in QEMU's process. Returns 0 or -errno; the caller owns both descriptors.
 */
int vm_net_find(int pidfd, int tap, struct vm_net *ret);

/* Opens the gate's descriptors (enum netns_fd); the caller owns them. Returns 0 or -errno. */
int vm_net_listen(const struct netns_maker *maker, int ns, int ret[NETNS_FDS]);
/*
 * Returns a socket that is connected or connecting to a port of the guest, or -errno. The guest
 * sees a connection from its gateway; a server that listens only on 127.0.0.1 inside cannot be
 * reached.
 */
int vm_net_dial(const struct netns_maker *maker, int ns, uint16_t port);
