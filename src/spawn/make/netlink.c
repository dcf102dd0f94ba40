#include "spawn/make/netlink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/defer.h"

enum { ANSWER_MAX = 8192, ANSWER_S = 5 };

/*
 * Reserves `len` bytes at the end of the buffer. Netlink pads every part of a message to four
 * bytes.
 */
static void *netlink_take(struct netlink *n, size_t len) {
    size_t padded = NLMSG_ALIGN(len);
    if (padded > sizeof(n->bytes) - n->used) {
        n->full = true;
        return NULL;
    }
    uint8_t *at = n->bytes + n->used;
    memset(at, 0, padded);
    n->used += padded;
    return at;
}

/* Updates the length in the header of the message. */
static void measure(struct netlink *n) {
    uint32_t len = (uint32_t)(n->used - n->message);
    memcpy(n->bytes + n->message, &len, sizeof(len));
}

static void netlink_put(struct netlink *n, const void *bytes, size_t len) {
    void *at = netlink_take(n, len);
    if (at && len)
        memcpy(at, bytes, len);
    measure(n);
}

void netlink_begin(struct netlink *n, uint16_t type, uint16_t flags, const void *body, size_t len) {
    struct nlmsghdr head = {.nlmsg_type = type,
                            .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags),
                            .nlmsg_seq = ++n->count};
    if (sizeof(n->bytes) - n->used < sizeof(head)) {
        n->full = true;
        return;
    }
    n->message = n->used;
    n->answers += (flags & NLM_F_ACK) != 0;
    netlink_put(n, &head, sizeof(head));
    netlink_put(n, body, len);
}

void netlink_attr(struct netlink *n, uint16_t type, const void *bytes, size_t len) {
    struct nlattr head = {.nla_len = (uint16_t)(sizeof(head) + len), .nla_type = type};
    uint8_t *at = netlink_take(n, sizeof(head) + len);
    if (at) {
        memcpy(at, &head, sizeof(head));
        memcpy(at + sizeof(head), bytes, len);
    }
    measure(n);
}

void netlink_text(struct netlink *n, uint16_t type, const char *text) {
    netlink_attr(n, type, text, strlen(text) + 1);
}

void netlink_be32(struct netlink *n, uint16_t type, uint32_t value) {
    netlink_attr(n, type, &(uint32_t){htonl(value)}, sizeof(value));
}

size_t netlink_open(struct netlink *n, uint16_t type) {
    size_t at = n->used;
    netlink_attr(n, type | NLA_F_NESTED, "", 0);
    return at;
}

void netlink_close(struct netlink *n, size_t at) {
    uint16_t len = (uint16_t)(n->used - at);
    if (!n->full)
        memcpy(n->bytes + at, &len, sizeof(len));
}

/* Counts the acknowledgements in a packet; *ret_error is the first error. */
static unsigned count_answers(uint8_t *packet, size_t len, int *ret_error) {
    unsigned count = 0;
    struct nlmsghdr *h = (struct nlmsghdr *)(void *)packet;
    for (; NLMSG_OK(h, len); h = NLMSG_NEXT(h, len)) {
        struct nlmsgerr answer;
        if (h->nlmsg_type != NLMSG_ERROR || h->nlmsg_len < NLMSG_LENGTH(sizeof(answer)))
            continue;
        memcpy(&answer, NLMSG_DATA(h), sizeof(answer));
        count++;
        if (answer.error && !*ret_error)
            *ret_error = answer.error;
    }
    return count;
}

/* Waits for the kernel's answers. A refused batch may have fewer answers than messages. */
static int await(int sock, unsigned answers) {
    _Alignas(8) uint8_t packet[ANSWER_MAX];
    int error = 0;
    while (answers && !error) {
        ssize_t got = recv(sock, packet, sizeof(packet), 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EPROTO;
        unsigned came = count_answers(packet, (size_t)got, &error);
        answers -= came < answers ? came : answers;
    }
    return error;
}

int netlink_send(const struct netlink *n, int protocol) {
    if (n->full)
        return -E2BIG;
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    struct timeval patience = {.tv_sec = ANSWER_S};
    int sock DEFER_CLOSE = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
    if (sock < 0 || setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0 ||
        sendto(sock, n->bytes, n->used, 0, (struct sockaddr *)&kernel, sizeof(kernel)) < 0)
        return -errno;
    return await(sock, n->answers);
}
