/*
 * Packets that the kernel refused in a machine's network before the gate saw them: datagrams and
 * IPv6. Only the kernel's counters in /proc/net/snmp and snmp6 of that namespace are known. Pure.
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

/* Parses both files; a missing counter is 0. */
void refused_read(const char *snmp, const char *snmp6, uint64_t ret[REFUSED_KINDS]);
