/*
 * What the kernel refused in a machine's network before the gate could hear of it: datagrams and
 * IPv6. It counts them itself, in /proc/net/snmp and snmp6 of that namespace; there is no more to
 * be known of them than how many there were. Pure.
 */
#pragma once

#include <stdint.h>

enum refused_kind {
    REFUSED_UDP,  /* dropped on the way out: the call that sent it failed with EPERM */
    REFUSED_IPV4, /* no way leads there: ENETUNREACH; all of it, where nothing is steered */
    REFUSED_IPV6,
    REFUSED_KINDS,
};

const char *refused_protocol(enum refused_kind kind);
const char *refused_why(enum refused_kind kind);

/* From the texts of both files; what one of them does not say is 0. */
void refused_read(const char *snmp, const char *snmp6, uint64_t ret[REFUSED_KINDS]);
