/*
 * Packets that the kernel refused in a machine's network before the gate saw them: datagrams and
 * IPv6. Only the kernel's counters in /proc/net/snmp and snmp6 of that namespace are known. Pure.
 */
#pragma once

#include <stdint.h>

enum refused_kind {
    REFUSED_UDP,  /* datagrams: dropped when they are sent, and send() fails with EPERM */
    REFUSED_IPV4, /* no route, so connect() or send() fails with ENETUNREACH */
    REFUSED_IPV6,
    REFUSED_KINDS,
};

const char *refused_protocol(enum refused_kind kind);
const char *refused_why(enum refused_kind kind);

/* Parses both files; a missing counter is 0. */
void refused_read(const char *snmp, const char *snmp6, uint64_t ret[REFUSED_KINDS]);
