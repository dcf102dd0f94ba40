/*
 * The network namespace of a box, with one way out.
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

enum { NETNS_STEERED_PORT = 3129, NETNS_PROXY_PORT = 3128, NETNS_DNS_PORT = 53 };

struct netns_maker {
    int home;     /* our own network namespace, where we stay */
    int proc;     /* an open /proc */
    int settings; /* another one, if `set` is not 0: what was set through it so often */
    unsigned set;
    bool steers;   /* it has worked: a failure has another reason than this kernel */
    bool plain;    /* this kernel cannot steer: only the explicit proxy leads out */
    int why_plain; /* the -errno that said so */
};

/* With loopback up. Descriptor or -errno. The first one finds out what the kernel can. */
int netns_new(struct netns_maker *maker);

/*
 * Of the gate, in this order: steered connections, the explicit proxy, DNS by UDP and by TCP; and
 * two files of what the kernel counts there, /proc/net/snmp and snmp6: what it refused by itself.
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

/* Opens them in a namespace; they are the caller's. 0 or -errno. */
int netns_listen(const struct netns_maker *maker, int ns, int ret[NETNS_FDS]);
/* A socket of it that is connected to that port of its loopback, or is being. -errno. */
int netns_dial(const struct netns_maker *maker, int ns, uint16_t port);
