/* Sockets and where they lead: groups 9, 10, 11, 12, 32, 33. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "attack.h"

#define HIGH (1L << 32)
#define TOO_SLOW 5000

static int new_socket(const struct attack *a) {
    return attack_outcome(syscall(SYS_socket, a->n[0], a->n[1] | SOCK_CLOEXEC, a->n[2]));
}

static int new_pair(const struct attack *a) {
    int ends[2];
    return attack_outcome(syscall(SYS_socketpair, a->n[0], a->n[1], a->n[2], ends));
}

/*
 * All families but those a program needs, as one row: most kernels know few of them. Outside, a
 * slow host may still be loading their modules when time is up.
 */
static int any_family(const struct attack *a) {
    static const int allowed[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};
    for (long family = a->n[0]; family <= a->n[1]; family++) {
        bool skip = false;
        for (size_t i = 0; i < sizeof(allowed) / sizeof(*allowed); i++)
            skip = skip || family == allowed[i];
        for (long type = SOCK_STREAM; !skip && type <= SOCK_SEQPACKET; type++)
            if (syscall(SYS_socket, family | a->n[2], type, 0L) >= 0 || errno != EAFNOSUPPORT)
                return 0;
    }
    return EAFNOSUPPORT;
}

static struct sockaddr_un unix_address(const char *name, bool is_abstract, socklen_t *ret_size) {
    struct sockaddr_un u = {.sun_family = AF_UNIX};
    snprintf(u.sun_path + is_abstract, sizeof(u.sun_path) - 1, "%s", name);
    *ret_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + is_abstract + strlen(name));
    return u;
}

static int connect_unix(const struct attack *a) {
    socklen_t size;
    const char *name = attack_fact(a->path);
    if (!name)
        return ENODATA;
    struct sockaddr_un u = unix_address(name, a->n[0] == 1, &size);
    int fd = socket(AF_UNIX, (int)a->n[1] | SOCK_CLOEXEC, 0);
    return fd < 0 ? errno : attack_outcome(connect(fd, (struct sockaddr *)&u, size));
}

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static socklen_t address_of(const char *text, uint16_t port, struct sockaddr_storage *ret) {
    struct sockaddr_in *four = (struct sockaddr_in *)ret;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)ret;
    memset(ret, 0, sizeof(*ret));
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons(port);
        return sizeof(*four);
    }
    inet_pton(AF_INET6, text, &six->sin6_addr);
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(port);
    return sizeof(*six);
}

/* A gate takes every connection and resets those that no rule allows. */
static int speak(int fd) {
    char c;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (send(fd, "carrel?!", 8, MSG_NOSIGNAL) < 0)
        return errno;
    return poll(&p, 1, 1000) == 1 && recv(fd, &c, 1, 0) < 0 ? errno : 0;
}

/* Anything that leaves is an attack that got through, answered or not; a refusal must be at once.
 */
static int reach(const struct attack *a) {
    struct sockaddr_storage to;
    const char *port = attack_fact("port");
    socklen_t size = address_of(
        a->path, (uint16_t)(a->n[1] ? a->n[1] : strtol(port ? port : "9", NULL, 10)), &to);
    int64_t began = now_ms();
    int fd = socket(to.ss_family, (int)a->n[0] | SOCK_NONBLOCK | SOCK_CLOEXEC, (int)a->n[2]);
    if (fd < 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &(int){1}, sizeof(int));
    int e = a->n[0] == SOCK_STREAM
                ? attack_outcome(connect(fd, (struct sockaddr *)&to, size))
                : attack_outcome(sendto(fd, "carrel?!", 8, 0, (struct sockaddr *)&to, size));
    if (now_ms() - began > 500)
        return TOO_SLOW;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    socklen_t len = sizeof(e);
    if (e == EINPROGRESS &&
        (poll(&p, 1, 300) <= 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0))
        return 0;
    return e == 0 && a->n[0] == SOCK_STREAM ? speak(fd) : e;
}

/* Sends one request to sock_diag and reads the answers; 0: `wanted` is in one of them. */
static int ask_diag(const void *request, size_t size, const void *wanted, size_t wanted_size) {
    static char answer[1 << 16];
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (fd < 0 || send(fd, request, size, 0) < 0)
        return errno;
    for (;;) {
        ssize_t n = recv(fd, answer, sizeof(answer), 0);
        if (n < 0)
            return errno;
        for (struct nlmsghdr *h = (void *)answer; NLMSG_OK(h, (size_t)n); h = NLMSG_NEXT(h, n)) {
            if (h->nlmsg_type == NLMSG_DONE)
                return ENODATA;
            if (h->nlmsg_type == NLMSG_ERROR)
                return -((struct nlmsgerr *)NLMSG_DATA(h))->error;
            if (memmem(NLMSG_DATA(h), NLMSG_PAYLOAD(h, 0), wanted, wanted_size))
                return 0;
        }
    }
}

/* A socket of the host in the kernel's lists of sockets. */
static int listed(const struct attack *a) {
    const char *fact = attack_fact(a->path);
    if (!fact)
        return ENODATA;
    if (a->n[0] == AF_UNIX) {
        struct {
            struct nlmsghdr head;
            struct unix_diag_req ask;
        } all = {{sizeof(all), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 1, 0},
                 {.sdiag_family = AF_UNIX, .udiag_states = ~0u, .udiag_show = UDIAG_SHOW_NAME}};
        return ask_diag(&all, sizeof(all), fact, strlen(fact));
    }
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 ask;
    } all = {{sizeof(all), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 1, 0},
             {.sdiag_family = AF_INET, .sdiag_protocol = IPPROTO_TCP, .idiag_states = ~0u}};
    /* As in an answer: state, timer, retransmissions, then the port of its own side. */
    uint16_t port = htons((uint16_t)strtol(fact, NULL, 10));
    unsigned char listener[6] = {AF_INET, 10, 0, 0};
    memcpy(listener + 4, &port, sizeof(port));
    return ask_diag(&all, sizeof(all), listener, sizeof(listener));
}

/* A listener of its own; the gate's are in the same network namespace. */
static int destroy_listener(const struct attack *a) {
    (void)a;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(own);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&own, size) < 0 || listen(fd, 1) < 0 ||
        getsockname(fd, (struct sockaddr *)&own, &size) < 0)
        return errno;
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 ask;
    } one = {{sizeof(one), SOCK_DESTROY, NLM_F_REQUEST | NLM_F_ACK, 1, 0},
             {.sdiag_family = AF_INET,
              .sdiag_protocol = IPPROTO_TCP,
              .idiag_states = ~0u,
              .id = {.idiag_sport = own.sin_port,
                     .idiag_src = {own.sin_addr.s_addr},
                     .idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}}};
    return ask_diag(&one, sizeof(one), "", 0);
}

#define FAMILY(group, name, family, type)                                   \
    {                                                                       \
        group, name, new_socket, NULL, {family, type, 0}, {EAFNOSUPPORT}, { \
            EPROTONOSUPPORT, EPROTOTYPE, ESOCKTNOSUPPORT, EINVAL            \
        }                                                                   \
    }
#define NETLINK(name, protocol)                                                    \
    {                                                                              \
        11, "netlink " name, new_socket, NULL, {AF_NETLINK, SOCK_RAW, protocol}, { \
            EAFNOSUPPORT                                                           \
        }                                                                          \
    }
/* Protocols that would make the host load a module, or reach code few programs use. */
#define PROTOCOL(name, family, type, protocol)                                                     \
    {                                                                                              \
        11, name, new_socket, NULL, {family, type, protocol}, {EPROTONOSUPPORT, ESOCKTNOSUPPORT},  \
            {0}, "none: most kernels have no such protocol; what counts is that none is asked for" \
    }
#define TCP(address, port)                                                                  \
    {                                                                                       \
        32, "tcp " address, reach, address, {SOCK_STREAM, port},                            \
            {ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL, EINVAL, ECONNREFUSED, ECONNRESET}, { \
            ECONNREFUSED, ECONNRESET                                                        \
        }                                                                                   \
    }
#define UDP(address, port)                                        \
    {                                                             \
        32, "udp " address, reach, address, {SOCK_DGRAM, port}, { \
            ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL, EPERM       \
        }                                                         \
    }

static const struct attack rows[] = {
    {9, "AF_PACKET raw", new_socket, NULL, {AF_PACKET, SOCK_RAW, 0}, {EAFNOSUPPORT}},
    {9, "AF_PACKET datagrams", new_socket, NULL, {AF_PACKET, SOCK_DGRAM, 0}, {EAFNOSUPPORT}},
    {9, "AF_INET raw icmp", new_socket, NULL, {AF_INET, SOCK_RAW, IPPROTO_ICMP}, {EPERM}},
    {9, "AF_INET raw tcp", new_socket, NULL, {AF_INET, SOCK_RAW, IPPROTO_TCP}, {EPERM}},
    {9, "AF_INET raw udp", new_socket, NULL, {AF_INET, SOCK_RAW, IPPROTO_UDP}, {EPERM}},
    {9,
     "AF_INET raw",
     new_socket,
     NULL,
     {AF_INET, SOCK_RAW, IPPROTO_RAW},
     {EPERM, EPROTONOSUPPORT}},
    {9, "AF_INET6 raw icmp", new_socket, NULL, {AF_INET6, SOCK_RAW, IPPROTO_ICMPV6}, {EPERM}},
    {9,
     "AF_INET6 raw",
     new_socket,
     NULL,
     {AF_INET6, SOCK_RAW, IPPROTO_RAW},
     {EPERM, EPROTONOSUPPORT}},
    {9,
     "AF_INET SOCK_PACKET",
     new_socket,
     NULL,
     {AF_INET, SOCK_PACKET, 0},
     {EAFNOSUPPORT, EPERM, ESOCKTNOSUPPORT, EPROTONOSUPPORT}},

    FAMILY(10, "AF_VSOCK stream", AF_VSOCK, SOCK_STREAM),
    FAMILY(10, "AF_VSOCK datagrams", AF_VSOCK, SOCK_DGRAM),
    FAMILY(10, "AF_VSOCK packets", AF_VSOCK, SOCK_SEQPACKET),
    FAMILY(10, "AF_VSOCK with high bits", AF_VSOCK | HIGH, SOCK_STREAM),

    FAMILY(11, "AF_ALG", AF_ALG, SOCK_SEQPACKET),
    FAMILY(11, "AF_ALG with high bits", AF_ALG | HIGH, SOCK_SEQPACKET),
    FAMILY(11, "AF_TIPC", AF_TIPC, SOCK_RDM),
    FAMILY(11, "AF_RDS", AF_RDS, SOCK_SEQPACKET),
    FAMILY(11, "AF_CAN", AF_CAN, SOCK_RAW),
    FAMILY(11, "AF_BLUETOOTH", AF_BLUETOOTH, SOCK_RAW),
    FAMILY(11, "AF_SMC", 43, SOCK_STREAM),
    FAMILY(11, "AF_XDP", 44, SOCK_RAW),
    FAMILY(11, "AF_MCTP", 45, SOCK_DGRAM),
    FAMILY(11, "AF_KEY", AF_KEY, SOCK_RAW),
    FAMILY(11, "AF_NFC", AF_NFC, SOCK_SEQPACKET),
    FAMILY(11, "AF_X25", AF_X25, SOCK_SEQPACKET),
    FAMILY(11, "AF_AX25", AF_AX25, SOCK_SEQPACKET),
    FAMILY(11, "AF_PPPOX", AF_PPPOX, SOCK_STREAM),
    FAMILY(11, "AF_KCM", AF_KCM, SOCK_DGRAM),
    FAMILY(11, "AF_QIPCRTR", 42, SOCK_DGRAM),
    FAMILY(11, "AF_LLC", AF_LLC, SOCK_STREAM),
    FAMILY(11, "AF_PHONET", AF_PHONET, SOCK_DGRAM),
    FAMILY(11, "AF_IEEE802154", AF_IEEE802154, SOCK_DGRAM),
    FAMILY(11, "AF_CAIF", AF_CAIF, SOCK_SEQPACKET),
    FAMILY(11, "AF_ATMPVC", AF_ATMPVC, SOCK_DGRAM),
    FAMILY(11, "AF_APPLETALK", AF_APPLETALK, SOCK_DGRAM),
    {11, "every family up to 64", any_family, NULL, {0, 64, 0}, {EAFNOSUPPORT}, {ATTACK_TIMEOUT}},
    {11,
     "every family with high bits",
     any_family,
     NULL,
     {0, 64, HIGH},
     {EAFNOSUPPORT},
     {ATTACK_TIMEOUT}},
    NETLINK("netfilter", 12),
    NETLINK("audit", 9),
    NETLINK("kobject_uevent", 15),
    NETLINK("generic", 16),
    NETLINK("xfrm", 6),
    NETLINK("crypto", 21),
    {11, "the host's TCP listener by sock_diag", listed, "port", {AF_INET}, {ENODATA}},
    {11, "the host's unix socket by sock_diag", listed, "abstract", {AF_UNIX}, {ENODATA}},
    {11,
     "destroy a socket by sock_diag",
     destroy_listener,
     NULL,
     {0},
     {EPERM, EOPNOTSUPP},
     {EOPNOTSUPP}},
    NETLINK("usersock", 2),
    NETLINK("selinux", 7),
    NETLINK("iscsi", 8),
    NETLINK("fib_lookup", 10),
    NETLINK("connector", 11),
    NETLINK("scsi", 18),
    NETLINK("rdma", 20),
    NETLINK("smc", 22),
    NETLINK("netfilter with high bits", 12 | HIGH),
    {11,
     "a pair of AF_TIPC",
     new_pair,
     NULL,
     {AF_TIPC, SOCK_STREAM, 0},
     {EAFNOSUPPORT},
     {EOPNOTSUPP}},
    {11,
     "a pair of AF_INET",
     new_pair,
     NULL,
     {AF_INET, SOCK_STREAM, 0},
     {EAFNOSUPPORT},
     {EOPNOTSUPP}},
    PROTOCOL("SCTP", AF_INET, SOCK_STREAM, 132),
    PROTOCOL("SCTP packets", AF_INET6, SOCK_SEQPACKET, 132),
    PROTOCOL("DCCP", AF_INET, 6, 33),
    PROTOCOL("DCCP without naming it", AF_INET, 6, 0),
    PROTOCOL("SMC over AF_INET", AF_INET, SOCK_STREAM, 256),
    PROTOCOL("UDP-Lite", AF_INET, SOCK_DGRAM, 136),
    PROTOCOL("L2TP", AF_INET, SOCK_DGRAM, 115),
    PROTOCOL("L2TP over AF_INET6", AF_INET6, SOCK_DGRAM, 115),
    PROTOCOL("a protocol nobody knows", AF_INET, SOCK_STREAM, 77),
    PROTOCOL("SCTP with high bits", AF_INET, SOCK_STREAM, 132 | HIGH),

    {12,
     "an abstract socket of the host",
     connect_unix,
     "abstract",
     {1, SOCK_STREAM},
     {ECONNREFUSED}},
    {12, "a socket file of the host", connect_unix, "socket", {0, SOCK_STREAM}, {ENOENT}},
    {33, "the spawner's socket", connect_unix, "spawn_sock", {0, SOCK_SEQPACKET}, {ENOENT}},
    {33, "the guest's own socket", connect_unix, "guest_sock", {0, SOCK_STREAM}, {ENOENT}},

    {32,
     "tcp 127.0.0.1, where the host listens",
     reach,
     "127.0.0.1",
     {SOCK_STREAM},
     {ECONNREFUSED},
     {0},
     "weak netns"},
    {32,
     "tcp ::ffff:127.0.0.1, where the host listens",
     reach,
     "::ffff:127.0.0.1",
     {SOCK_STREAM},
     {ECONNREFUSED},
     {0},
     "weak netns"},
    TCP("1.1.1.1", 443),
    TCP("8.8.8.8", 53),
    TCP("169.254.169.254", 80),
    TCP("169.254.170.2", 80),
    TCP("100.100.100.200", 80),
    TCP("10.0.0.1", 80),
    TCP("172.17.0.1", 22),
    TCP("192.168.0.1", 22),
    TCP("2606:4700:4700::1111", 443),
    TCP("fd00:ec2::254", 80),
    TCP("::ffff:169.254.169.254", 80),
    TCP("64:ff9b::a9fe:a9fe", 80),
    UDP("1.1.1.1", 53),
    UDP("8.8.8.8", 53),
    UDP("169.254.169.254", 53),
    UDP("10.0.0.2", 53),
    UDP("2001:4860:4860::8888", 53),
    UDP("239.255.255.250", 1900),
    UDP("224.0.0.251", 5353),
    UDP("ff02::fb", 5353),
    {32, "udp broadcast", reach, "255.255.255.255", {SOCK_DGRAM, 67}, {EPERM, EACCES, ENETUNREACH}},
    {32,
     "icmp echo",
     reach,
     "1.1.1.1",
     {SOCK_DGRAM, 1, IPPROTO_ICMP},
     {EACCES, EPERM, ENETUNREACH},
     {0},
     "none: hosts differ in who may ping; the raw sockets of group 9 have the control"},
    {32,
     "icmp6 echo",
     reach,
     "2606:4700:4700::1111",
     {SOCK_DGRAM, 1, IPPROTO_ICMPV6},
     {EACCES, EPERM, ENETUNREACH},
     {0},
     "none: hosts differ in who may ping; the raw sockets of group 9 have the control"},
};

const struct attack_table net_attacks = ATTACK_TABLE(rows);
