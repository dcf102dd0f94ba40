/*
 * Classifies addresses, and converts them to and from text.
 *
 * Only `public` addresses may be reached without a rule with --local. An IPv6 address that embeds
 * an IPv4 address is `mapped` and never public.
 */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum address_kind {
    ADDRESS_PUBLIC,
    ADDRESS_LOOPBACK,
    ADDRESS_PRIVATE,    /* 10/8, 172.16/12, 192.168/16, fc00::/7, fec0::/10 */
    ADDRESS_LINK_LOCAL, /* 169.254/16 and fe80::/10 */
    ADDRESS_METADATA,   /* servers from which a cloud host gets its credentials */
    ADDRESS_SHARED,     /* NAT of internet providers: 100.64/10 */
    ADDRESS_MAPPED,     /* IPv4 in IPv6: mapped, 6to4, NAT64, Teredo */
    ADDRESS_RESERVED,   /* not a host: multicast, broadcast, documentation, benchmarking */
};

const char *address_kind_name(enum address_kind kind);

enum address_kind address_kind4(uint32_t host_order);
enum address_kind address_kind6(const uint8_t bytes[16]);
enum address_kind address_kind_of(const struct sockaddr *a);

enum { ADDRESS_TEXT_SIZE = 46 };

/* Writes the address as text, without the port. */
void address_text(const struct sockaddr *a, char ret[ADDRESS_TEXT_SIZE]);
/* Parses an address: IPv4 as four decimal parts with dots, or IPv6 in the syntax of inet_pton().
 * `ret` gets the canonical text. */
bool address_read(const char *text, size_t n, char ret[ADDRESS_TEXT_SIZE]);
/* A range of IPv4 addresses: those whose first `bits` bits are the ones of `net`. */
struct address_range {
    uint32_t net; /* host order */
    unsigned bits;
};

/* Parses "10.1.2.0/24", or an IPv4 address, which is a range of 32 bits. The bits of the host
 * become 0. A range has at least one bit. */
bool address_range_read(const char *text, size_t n, struct address_range *ret);
/* Whether the range has this address. IPv6 addresses that contain an IPv4 one are in no range. */
bool address_range_has(const struct address_range *r, const struct sockaddr *a);
/* Whether this host would answer a connection to the address: one of its own, 0.0.0.0, multicast
 * or broadcast. */
bool address_is_of_host(const struct sockaddr *a);

/* Whether a host, a name or an address as text, is the machine that uses it. */
bool address_is_self(const char *host);
