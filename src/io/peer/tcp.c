#include "io/peer/tcp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { LINE = 512, ADDRESS_TEXT = 48 };

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* Writes an address as the kernel's table does: words in the byte order of the host, a colon, and
 * the port, all in hexadecimal digits. */
static void table_text(const union address *a, char ret[ADDRESS_TEXT]) {
    uint32_t words[4];
    bool v6 = a->any.sa_family == AF_INET6;
    uint16_t port = ntohs(v6 ? a->v6.sin6_port : a->v4.sin_port);
    int n = 0;
    memcpy(words, v6 ? (const void *)&a->v6.sin6_addr : (const void *)&a->v4.sin_addr, v6 ? 16 : 4);
    for (int i = 0; i < (v6 ? 4 : 1); i++)
        n += snprintf(ret + n, (size_t)(ADDRESS_TEXT - n), "%08X", words[i]);
    snprintf(ret + n, (size_t)(ADDRESS_TEXT - n), ":%04X", port);
}

/* Reads one row. True: it is the socket of the other end, and a process holds it. */
static bool row_is_peer(const char *row, const char *local, const char *remote, uid_t *ret) {
    char from[ADDRESS_TEXT], to[ADDRESS_TEXT];
    unsigned long inode;
    return sscanf(row, " %*d: %47s %47s %*x %*x:%*x %*x:%*x %*x %u %*d %lu", from, to, ret,
                  &inode) == 4 &&
           strcmp(from, local) == 0 && strcmp(to, remote) == 0 && inode != 0;
}

bool tcp_peer_user(int sock, uid_t *ret) {
    union address here, there;
    socklen_t n = sizeof(here), m = sizeof(there);
    char local[ADDRESS_TEXT], remote[ADDRESS_TEXT], row[LINE];
    bool found = false;
    uid_t uid;
    if (getsockname(sock, &here.any, &n) < 0 || getpeername(sock, &there.any, &m) < 0)
        return false;
    table_text(&there, local);
    table_text(&here, remote);
    FILE *table = fopen(here.any.sa_family == AF_INET6 ? "/proc/net/tcp6" : "/proc/net/tcp", "re");
    while (table && !found && fgets(row, sizeof(row), table))
        found = row_is_peer(row, local, remote, &uid);
    if (table)
        fclose(table);
    if (found)
        *ret = uid;
    return found;
}
