/*
 * Writes the packet filter rules (nf_tables) of a network namespace, without a library.
 *
 * One batch makes the table `carrel` of family ip with its chains and rules; the kernel accepts all
 * of it or none. A rule is a list of matches and, at its end, what happens to a packet that matches
 * all of them.
 */
#pragma once

#include <linux/netfilter/nf_tables.h>
#include <stddef.h>
#include <stdint.h>

#include "spawn/make/netlink.h"

enum { NFT_PRIORITY_MANGLE = -150, NFT_PRIORITY_FILTER = 0 };

/* Starts a batch with the new table, in an empty *n. */
void nft_begin(struct netlink *n);
/* Sends the batch. Returns 0 or -errno; -ENOENT, -EOPNOTSUPP: the kernel lacks a part. */
int nft_send(struct netlink *n);

/* Adds a chain of type filter, which accepts what no rule decides. hook: enum nf_inet_hooks. */
void nft_chain(struct netlink *n, const char *name, unsigned hook, int priority);
/* Starts a rule at the end of a chain; netlink_close() with the result ends it. */
size_t nft_rule(struct netlink *n, const char *chain);

void nft_match_protocol(struct netlink *n, enum nft_cmp_ops op, uint8_t protocol);
/* Matches destinations outside 127.0.0.0/8, by their first byte. */
void nft_match_outside(struct netlink *n);
void nft_match_source(struct netlink *n, enum nft_cmp_ops op, const uint8_t address[4]);
void nft_match_destination(struct netlink *n, enum nft_cmp_ops op, const uint8_t address[4]);
/* Matches the destination port of TCP or UDP. */
void nft_match_port(struct netlink *n, enum nft_cmp_ops op, uint16_t port);

/* Gives a TCP packet to the listener at this address and port, with its original destination. */
void nft_tproxy(struct netlink *n, const uint8_t address[4], uint16_t port);
void nft_verdict(struct netlink *n, uint32_t code); /* NF_DROP, NF_ACCEPT */
/* Drops a packet, and tells the sender that it is prohibited (ICMP type 3, code 13). */
void nft_reject(struct netlink *n);
