#include "spawn/make/residue.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"

enum { FILE_SIZE = 1 << 14, SMALL_SIZE = 512 };

/*
 * Files of /proc/net. Any packet, also one that a rule dropped, is counted in snmp, netstat or
 * snmp6. Flow labels outlive their socket. The others show addresses, routes and devices.
 */
static const char *const files[] = {"snmp",     "netstat", "snmp6", "dev",          "fib_trie",
                                    "if_inet6", "igmp",    "igmp6", "ip6_flowlabel"};

/*
 * Settings that show state: Carrel's own setting, the key that the first server with TCP Fast Open
 * creates, and the number of tracked connections.
 */
static const char *const sysctls[] = {"sys/net/ipv4/ip_unprivileged_port_start",
                                      "sys/net/ipv4/tcp_fastopen_key",
                                      "sys/net/netfilter/nf_conntrack_count"};

/* Adds a file. One that does not exist adds only its name: a new namespace lacks it too. */
static int add_file(int dir, const char *name, struct buf *ret) {
    static char text[FILE_SIZE];
    ssize_t n = read_file_at(dir, name, text, sizeof(text));
    if (n < 0 && n != -ENOENT)
        return (int)n;
    if (n >= FILE_SIZE - 1)
        return -EFBIG;
    /* Not buf_addf(), which takes longer. The texts are compared as strings: add no NUL. */
    return buf_add(ret, name, strlen(name)) && buf_add(ret, "\n", 1) &&
                   buf_add(ret, text, n > 0 ? strlen(text) : 0)
               ? 0
               : -ENOBUFS;
}

/*
 * True if no socket of any family is left, nor a connection in time-wait. The line of TCP also has
 * numbers of the whole host.
 */
static bool is_without_sockets(int net) {
    char text[SMALL_SIZE];
    return read_file_at(net, "sockstat", text, sizeof(text)) > 0 &&
           strncmp(text, "sockets: used 0\n", 16) == 0 && strstr(text, " tw 0 ");
}

/* Finds the number of the rule set in an answer to GETGEN: each change of rules increases it. */
static int find_generation(const uint8_t *packet, size_t len, uint32_t *ret) {
    struct nlattr attr;
    size_t at = NLMSG_LENGTH(sizeof(struct nfgenmsg));
    for (; at + sizeof(attr) <= len; at += NLMSG_ALIGN(attr.nla_len)) {
        memcpy(&attr, packet + at, sizeof(attr));
        if (attr.nla_len < sizeof(attr) || attr.nla_len > len - at)
            break;
        if (attr.nla_type == NFTA_GEN_ID && attr.nla_len >= sizeof(attr) + sizeof(*ret)) {
            memcpy(ret, packet + at + sizeof(attr), sizeof(*ret));
            return 0;
        }
    }
    return -EPROTO;
}

/* The kernel answers while it handles the request, so the answer is there at once. */
static int ask_generation(uint32_t *ret) {
    struct {
        struct nlmsghdr head;
        struct nfgenmsg body;
    } ask = {.head = {.nlmsg_len = sizeof(ask),
                      .nlmsg_type = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETGEN,
                      .nlmsg_flags = NLM_F_REQUEST}};
    _Alignas(8) uint8_t answer[SMALL_SIZE];
    int sock DEFER_CLOSE = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
    if (sock < 0 || send(sock, &ask, sizeof(ask), 0) < 0)
        return -errno;
    ssize_t n = recv(sock, answer, sizeof(answer), MSG_DONTWAIT);
    return n < 0 ? -errno : find_generation(answer, (size_t)n, ret);
}

/* Adds the number of the rule set, or the error of a kernel without nf_tables. */
static int add_rules(struct buf *ret) {
    uint32_t generation = 0;
    int r = ask_generation(&generation);
    return buf_addf(ret, "rules %d %u\n", r, generation) ? 0 : -ENOBUFS;
}

int residue_read(int proc, int settings, struct buf *ret) {
    int net DEFER_CLOSE = openat(proc, "thread-self/net", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (net < 0)
        return -errno;
    if (!is_without_sockets(net))
        return -EBUSY;
    int r = 0;
    for (size_t i = 0; r == 0 && i < sizeof(files) / sizeof(*files); i++)
        r = add_file(net, files[i], ret);
    for (size_t i = 0; r == 0 && i < sizeof(sysctls) / sizeof(*sysctls); i++)
        r = add_file(settings, sysctls[i], ret);
    return r < 0 ? r : add_rules(ret);
}
