#include "gate/dns.h"

#include <stdbool.h>
#include <string.h>

#include "gate/name.h"

enum {
    HEADER = 12,
    FLAG_ANSWER = 0x8000,
    FLAG_OPCODE = 0x7800,
    FLAG_CUT = 0x0200,
    FLAG_WANTED = 0x0100,
    FLAG_SERVED = 0x0080,
    TYPE_A = 1,
    CLASS_IN = 1,
    WIRE_MAX = 255,
};

enum code { CODE_OK, CODE_MALFORMED, CODE_FAILED, CODE_NO_NAME, CODE_UNKNOWN, CODE_REFUSED };

struct question {
    char name[NAME_SIZE]; /* empty: not a valid host name */
    uint16_t type, class;
    size_t end; /* offset of the end of the question in the query */
};

static unsigned get16(const uint8_t *p) {
    return (unsigned)p[0] << 8 | p[1];
}

static void put16(uint8_t *p, unsigned value) {
    p[0] = (uint8_t)(value >> 8);
    p[1] = (uint8_t)value;
}

/* Writes the labels of a host name as text with dots. False: the labels exceed the packet, or are
 * compressed, which is not allowed in a query. */
static bool read_labels(const uint8_t *q, size_t n, size_t *at, char text[WIRE_MAX + 1],
                        size_t *ret_len) {
    size_t len = 0;
    for (;;) {
        if (*at >= n)
            return false;
        size_t label = q[(*at)++];
        if (label == 0)
            break;
        if (label > LABEL_MAX || label > n - *at || len + label + 1 > WIRE_MAX)
            return false;
        if (len)
            text[len++] = '.';
        memcpy(text + len, q + *at, label);
        len += label;
        *at += label;
    }
    *ret_len = len;
    return true;
}

/* A label with a dot inside would look like two labels in the text. */
static bool has_inner_dot(const uint8_t *q, size_t from, size_t to) {
    for (size_t at = from; at < to && q[at];) {
        if (memchr(q + at + 1, '.', q[at]))
            return true;
        at += 1u + q[at];
    }
    return false;
}

static bool read_question(const uint8_t *q, size_t n, struct question *ret) {
    char text[WIRE_MAX + 1];
    size_t at = HEADER, len = 0;
    if (!read_labels(q, n, &at, text, &len) || n - at < 4)
        return false;
    if (has_inner_dot(q, HEADER, at) || !name_read(text, len, ret->name))
        ret->name[0] = '\0';
    ret->type = (uint16_t)get16(q + at);
    ret->class = (uint16_t)get16(q + at + 2);
    ret->end = at + 4;
    return true;
}

static size_t dns_put_head(const uint8_t *q, size_t question_end, enum code code, unsigned answers,
                           uint8_t *ret) {
    unsigned flags = get16(q + 2) & (FLAG_WANTED | FLAG_OPCODE);
    memset(ret, 0, HEADER);
    memcpy(ret, q, 2);
    put16(ret + 2, FLAG_ANSWER | FLAG_SERVED | flags | code);
    put16(ret + 4, question_end > HEADER);
    put16(ret + 6, answers);
    memcpy(ret + HEADER, q + HEADER, question_end - HEADER);
    return question_end;
}

static size_t put_address(uint8_t *at, uint32_t address) {
    put16(at, 0xc000 | HEADER); /* pointer to the name in the question */
    put16(at + 2, TYPE_A);
    put16(at + 4, CLASS_IN);
    put16(at + 6, 0);
    put16(at + 8, DNS_TTL_S);
    put16(at + 10, 4);
    put16(at + 12, address >> 16);
    put16(at + 14, address & 0xffff);
    return 16;
}

static enum code dns_find(const struct question *q, dns_lookup_fn *lookup, void *arg,
                          uint32_t *ret_address) {
    static const uint32_t loopback = 0x7f000001;
    *ret_address = 0;
    if (q->class != CLASS_IN)
        return CODE_REFUSED;
    if (!q->name[0] || name_is_below(q->name, "arpa"))
        return CODE_NO_NAME;
    if (q->type != TYPE_A)
        return CODE_OK;
    if (strcmp(q->name, "localhost") == 0 || name_is_below(q->name, "localhost"))
        *ret_address = loopback;
    else
        *ret_address = lookup(arg, q->name);
    return *ret_address ? CODE_OK : CODE_FAILED;
}

size_t dns_answer(const uint8_t *query, size_t n, dns_lookup_fn *lookup, void *arg,
                  uint8_t ret[DNS_MESSAGE_MAX]) {
    struct question q = {.end = HEADER};
    uint32_t address;
    /* Never answer an answer: two servers would send packets to each other for ever. */
    if (n < HEADER || n > DNS_QUERY_MAX || get16(query + 2) & FLAG_ANSWER)
        return 0;
    if (get16(query + 2) & FLAG_OPCODE)
        return dns_put_head(query, HEADER, CODE_UNKNOWN, 0, ret);
    if (get16(query + 2) & FLAG_CUT || get16(query + 4) != 1 || !read_question(query, n, &q))
        return dns_put_head(query, HEADER, CODE_MALFORMED, 0, ret);
    enum code code = dns_find(&q, lookup, arg, &address);
    size_t len = dns_put_head(query, q.end, code, address != 0, ret);
    return address ? len + put_address(ret + len, address) : len;
}
