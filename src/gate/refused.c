#include "gate/refused.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *protocol, *why, *counter;
} kinds[REFUSED_KINDS] = {
    [REFUSED_UDP] = {"udp", "datagrams dropped: machines may only use TCP", "OutDiscards"},
    [REFUSED_IPV4] = {"ipv4", "no route to this address", "OutNoRoutes"},
    [REFUSED_IPV6] = {"ipv6", "no route: machines have no IPv6", "Ip6OutNoRoutes"},
};

const char *refused_protocol(enum refused_kind kind) {
    return kinds[kind].protocol;
}

const char *refused_why(enum refused_kind kind) {
    return kinds[kind].why;
}

static bool is_word(const char *at, const char *word) {
    size_t n = strlen(word);
    return strncmp(at, word, n) == 0 && (!at[n] || strchr(" \n", at[n]));
}

/* Reads a counter from two lines, "Ip: NAME NAME ..." and "Ip: VALUE VALUE ...". */
static uint64_t read_pair(const char *text, const char *counter) {
    const char *name = strncmp(text, "Ip: ", 4) == 0 ? text + 4 : NULL;
    const char *value = name ? strstr(name, "\nIp: ") : NULL;
    for (value = value ? value + 5 : NULL; value && *name && *name != '\n';) {
        if (is_word(name, counter))
            return strtoull(value, NULL, 10);
        name += strcspn(name, " \n");
        value += strcspn(value, " \n");
        if (*name != ' ' || *value != ' ')
            break;
        name++;
        value++;
    }
    return 0;
}

/* Reads a counter from lines "NAME   VALUE". */
static uint64_t read_line(const char *text, const char *counter) {
    for (const char *at = text; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (is_word(at, counter))
            return strtoull(at + strlen(counter), NULL, 10);
    }
    return 0;
}

void refused_read(const char *snmp, const char *snmp6, uint64_t ret[REFUSED_KINDS]) {
    ret[REFUSED_UDP] = read_pair(snmp, kinds[REFUSED_UDP].counter);
    ret[REFUSED_IPV4] = read_pair(snmp, kinds[REFUSED_IPV4].counter);
    ret[REFUSED_IPV6] = read_line(snmp6, kinds[REFUSED_IPV6].counter);
}
