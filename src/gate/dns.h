/*
 * The name server that a machine sees (RFC 1035): it makes answers up and asks nobody.
 *
 * Every valid name has an address, whether it may be reached or not: a refusal happens at the
 * connection, where it can be explained, written down, or asked about. Other types than A exist
 * for no name (no IPv6, no keys for hidden hellos). Pure: bytes in, bytes out.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { DNS_MESSAGE_MAX = 512, DNS_QUERY_MAX = 4096, DNS_TTL_S = 300 };

/* The address of a name, in host order; 0: none is left. */
typedef uint32_t dns_lookup_fn(void *arg, const char *name);

/* Bytes of the answer; 0: what came deserves none. */
size_t dns_answer(const uint8_t *query, size_t n, dns_lookup_fn *lookup, void *arg,
                  uint8_t ret[DNS_MESSAGE_MAX]);
