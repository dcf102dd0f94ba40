/*
 * Adds links, addresses and routes of a network namespace to a netlink message.
 *
 * Every function adds one message with NLM_F_ACK; netlink_send(n, NETLINK_ROUTE) sends them all.
 */
#pragma once

#include <stdint.h>

#include "spawn/make/netlink.h"

enum { ROUTE_LOOPBACK = 1 }; /* index of the loopback device */

/* Sets a device up. mac: its new address, 6 bytes; NULL: unchanged. */
void route_link_up(struct netlink *n, int device, const uint8_t *mac);
void route_address(struct netlink *n, int device, const uint8_t address[4], uint8_t prefix);
/*
 * Makes every IPv4 address local. The source address of packets is set to 127.0.0.1: otherwise it
 * would equal the destination, and a connection to its own port would connect to itself.
 */
void route_all_local(struct netlink *n);
/*
 * Reaches one address through a device, from the address `from`. The route is in the table `local`,
 * where it goes before that of route_all_local().
 */
void route_peer(struct netlink *n, int device, const uint8_t peer[4], const uint8_t from[4]);
