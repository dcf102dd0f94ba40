/*
 * The DNS server that a machine sees (RFC 1035): it makes up answers and asks no other server.
 *
 * Every valid host name has an address, whether the host may be reached or not: the refusal happens
 * at the connection, where it can be explained, logged or held for approval. Only A records exist
 * (no IPv6, no encrypted ClientHello keys). Pure: bytes in, bytes out.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { DNS_MESSAGE_MAX = 512, DNS_QUERY_MAX = 4096, DNS_TTL_S = 300 };

/* Returns the address of a host name, in host order; 0: the name cannot get an address now. */
typedef uint32_t dns_lookup_fn(void *arg, const char *name);

/* Returns the size of the answer; 0: do not answer. */
size_t dns_answer(const uint8_t *query, size_t n, dns_lookup_fn *lookup, void *arg,
                  uint8_t ret[DNS_MESSAGE_MAX]);
