#include "gate/address.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/defer.h"
#include "base/parse.h"

#define IP(a, b, c, d) ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (d))

/* In both tables the first range that contains an address decides the kind of that address. */
static const struct {
    uint32_t net;
    uint8_t bits;
    enum address_kind kind;
} ranges4[] = {
    {IP(169, 254, 169, 254), 32, ADDRESS_METADATA}, {IP(169, 254, 170, 2), 32, ADDRESS_METADATA},
    {IP(100, 100, 100, 200), 32, ADDRESS_METADATA}, {IP(168, 63, 129, 16), 32, ADDRESS_METADATA},
    {IP(127, 0, 0, 0), 8, ADDRESS_LOOPBACK},        {IP(0, 0, 0, 0), 8, ADDRESS_RESERVED},
    {IP(10, 0, 0, 0), 8, ADDRESS_PRIVATE},          {IP(172, 16, 0, 0), 12, ADDRESS_PRIVATE},
    {IP(192, 168, 0, 0), 16, ADDRESS_PRIVATE},      {IP(169, 254, 0, 0), 16, ADDRESS_LINK_LOCAL},
    {IP(100, 64, 0, 0), 10, ADDRESS_SHARED},        {IP(192, 0, 0, 0), 24, ADDRESS_RESERVED},
    {IP(192, 0, 2, 0), 24, ADDRESS_RESERVED},       {IP(192, 88, 99, 0), 24, ADDRESS_RESERVED},
    {IP(198, 18, 0, 0), 15, ADDRESS_RESERVED},      {IP(198, 51, 100, 0), 24, ADDRESS_RESERVED},
    {IP(203, 0, 113, 0), 24, ADDRESS_RESERVED},     {IP(224, 0, 0, 0), 3, ADDRESS_RESERVED},
};

static const struct {
    uint8_t net[16];
    uint8_t bits;
    enum address_kind kind;
} ranges6[] = {
    {{[15] = 1}, 128, ADDRESS_LOOPBACK},
    {{[10] = 0xff, [11] = 0xff}, 96, ADDRESS_MAPPED},
    {{0}, 64, ADDRESS_RESERVED},
    {{0x00, 0x64, 0xff, 0x9b}, 32, ADDRESS_MAPPED},
    {{0x01, 0x00}, 64, ADDRESS_RESERVED},
    {{0x20, 0x01, 0x00, 0x00}, 32, ADDRESS_MAPPED},
    {{0x20, 0x01, 0x00}, 23, ADDRESS_RESERVED},
    {{0x20, 0x01, 0x0d, 0xb8}, 32, ADDRESS_RESERVED},
    {{0x20, 0x02}, 16, ADDRESS_MAPPED},
    {{0x3f, 0xff}, 20, ADDRESS_RESERVED},
    {{0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54}, 128, ADDRESS_METADATA},
    {{0xfc}, 7, ADDRESS_PRIVATE},
    {{0xfe, 0x80}, 10, ADDRESS_LINK_LOCAL},
    {{0xfe, 0xc0}, 10, ADDRESS_PRIVATE},
    {{0xff}, 8, ADDRESS_RESERVED},
    {{0x20}, 3, ADDRESS_PUBLIC}, /* the only block of which public addresses were assigned */
};

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

const char *address_kind_name(enum address_kind kind) {
    static const char *const names[] = {"public",   "loopback", "private", "link-local",
                                        "metadata", "shared",   "mapped",  "reserved"};
    return names[kind];
}

enum address_kind address_kind4(uint32_t a) {
    for (size_t i = 0; i < COUNT(ranges4); i++)
        if (((a ^ ranges4[i].net) >> (32 - ranges4[i].bits)) == 0)
            return ranges4[i].kind;
    return ADDRESS_PUBLIC;
}

static bool has_prefix(const uint8_t a[16], const uint8_t net[16], unsigned bits) {
    unsigned whole = bits / 8, rest = bits % 8;
    if (memcmp(a, net, whole) != 0)
        return false;
    return rest == 0 || ((a[whole] ^ net[whole]) >> (8 - rest)) == 0;
}

enum address_kind address_kind6(const uint8_t a[16]) {
    for (size_t i = 0; i < COUNT(ranges6); i++)
        if (has_prefix(a, ranges6[i].net, ranges6[i].bits))
            return ranges6[i].kind;
    return ADDRESS_RESERVED;
}

enum address_kind address_kind_of(const struct sockaddr *a) {
    if (a->sa_family == AF_INET)
        return address_kind4(ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr));
    if (a->sa_family == AF_INET6)
        return address_kind6(((const struct sockaddr_in6 *)(const void *)a)->sin6_addr.s6_addr);
    return ADDRESS_RESERVED;
}

void address_text(const struct sockaddr *a, char ret[ADDRESS_TEXT_SIZE]) {
    const void *from =
        a->sa_family == AF_INET6
            ? (const void *)&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr
            : (const void *)&((const struct sockaddr_in *)(const void *)a)->sin_addr;
    if (!inet_ntop(a->sa_family, from, ret, ADDRESS_TEXT_SIZE))
        ret[0] = '\0';
}

/* Prints the parsed address again, so that each address has exactly one text. */
bool address_read(const char *text, size_t n, char ret[ADDRESS_TEXT_SIZE]) {
    char copy[ADDRESS_TEXT_SIZE];
    struct in6_addr six;
    struct in_addr four;
    ret[0] = '\0';
    if (n == 0 || n >= sizeof(copy) || memchr(text, '\0', n))
        return false;
    memcpy(copy, text, n);
    copy[n] = '\0';
    if (inet_pton(AF_INET, copy, &four) == 1)
        return inet_ntop(AF_INET, &four, ret, ADDRESS_TEXT_SIZE) != NULL;
    return inet_pton(AF_INET6, copy, &six) == 1 &&
           inet_ntop(AF_INET6, &six, ret, ADDRESS_TEXT_SIZE) != NULL;
}

bool address_range_read(const char *text, size_t n, struct address_range *ret) {
    const char *slash = n ? memchr(text, '/', n) : NULL;
    size_t length = slash ? (size_t)(slash - text) : n, digits = n - length;
    char copy[INET_ADDRSTRLEN], number[4] = "32";
    struct in_addr four;
    uint64_t bits;
    if (length >= sizeof(copy) || (slash && (digits < 2 || digits > 3)))
        return false;
    snprintf(copy, sizeof(copy), "%.*s", (int)length, text);
    if (slash)
        snprintf(number, sizeof(number), "%.*s", (int)digits - 1, slash + 1);
    if (inet_pton(AF_INET, copy, &four) != 1 || parse_u64(number, 1, 32, &bits, NULL) < 0)
        return false;
    ret->bits = (unsigned)bits;
    ret->net = ntohl(four.s_addr) >> (32 - bits) << (32 - bits);
    return true;
}

bool address_range_has(const struct address_range *r, const struct sockaddr *a) {
    if (a->sa_family != AF_INET)
        return false;
    uint32_t four = ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr);
    return (four ^ r->net) >> (32 - r->bits) == 0;
}

/* The kernel binds a socket to no other addresses. */
bool address_is_of_host(const struct sockaddr *a) {
    struct sockaddr_storage own = {.ss_family = a->sa_family};
    bool is_four = a->sa_family == AF_INET;
    socklen_t size = is_four ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    int fd DEFER_CLOSE = socket(a->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memcpy(&own, a, size);
    if (is_four)
        ((struct sockaddr_in *)(void *)&own)->sin_port = 0;
    else
        ((struct sockaddr_in6 *)(void *)&own)->sin6_port = 0;
    return fd < 0 || bind(fd, (const struct sockaddr *)&own, size) == 0;
}

bool address_is_self(const char *host) {
    static const char name[] = "localhost";
    struct in6_addr six;
    struct in_addr four;
    size_t n = strlen(host), tail = sizeof(name) - 1;
    if (inet_pton(AF_INET, host, &four) == 1)
        return address_kind4(ntohl(four.s_addr)) == ADDRESS_LOOPBACK || four.s_addr == 0;
    if (inet_pton(AF_INET6, host, &six) == 1)
        return address_kind6(six.s6_addr) == ADDRESS_LOOPBACK;
    return n >= tail && strcmp(host + n - tail, name) == 0 &&
           (n == tail || host[n - tail - 1] == '.');
}
