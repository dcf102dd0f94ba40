#include "spawn/make/nft.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <netinet/ip_icmp.h>
#include <sys/socket.h>

#define TABLE "carrel"

enum { SOURCE = 12, DESTINATION = 16, PORT = 2 }; /* offsets in the IPv4, the TCP or UDP header */

struct expression {
    size_t element, data;
};

static struct expression expression_open(struct netlink *n, const char *name) {
    struct expression e = {.element = netlink_open(n, NFTA_LIST_ELEM)};
    netlink_text(n, NFTA_EXPR_NAME, name);
    e.data = netlink_open(n, NFTA_EXPR_DATA);
    return e;
}

static void expression_close(struct netlink *n, struct expression e) {
    netlink_close(n, e.data);
    netlink_close(n, e.element);
}

static void put_compare(struct netlink *n, enum nft_cmp_ops op, const void *value, size_t len) {
    struct expression e = expression_open(n, "cmp");
    netlink_be32(n, NFTA_CMP_SREG, NFT_REG_1);
    netlink_be32(n, NFTA_CMP_OP, op);
    size_t data = netlink_open(n, NFTA_CMP_DATA);
    netlink_attr(n, NFTA_DATA_VALUE, value, len);
    netlink_close(n, data);
    expression_close(n, e);
}

static void put_payload(struct netlink *n, enum nft_payload_bases base, uint32_t offset,
                        size_t len) {
    struct expression e = expression_open(n, "payload");
    netlink_be32(n, NFTA_PAYLOAD_BASE, base);
    netlink_be32(n, NFTA_PAYLOAD_OFFSET, offset);
    netlink_be32(n, NFTA_PAYLOAD_LEN, (uint32_t)len);
    netlink_be32(n, NFTA_PAYLOAD_DREG, NFT_REG_1);
    expression_close(n, e);
}

static void put_value(struct netlink *n, enum nft_registers reg, const void *value, size_t len) {
    struct expression e = expression_open(n, "immediate");
    netlink_be32(n, NFTA_IMMEDIATE_DREG, reg);
    size_t data = netlink_open(n, NFTA_IMMEDIATE_DATA);
    netlink_attr(n, NFTA_DATA_VALUE, value, len);
    netlink_close(n, data);
    expression_close(n, e);
}

static void put_message(struct netlink *n, uint16_t type, uint16_t flags) {
    struct nfgenmsg body = {.nfgen_family = AF_INET};
    netlink_begin(n, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), flags | NLM_F_ACK, &body,
                  sizeof(body));
}

static void put_batch(struct netlink *n, uint16_t type) {
    const struct nfgenmsg body = {.res_id = htons(NFNL_SUBSYS_NFTABLES)};
    netlink_begin(n, type, 0, &body, sizeof(body));
}

void nft_begin(struct netlink *n) {
    put_batch(n, NFNL_MSG_BATCH_BEGIN);
    put_message(n, NFT_MSG_NEWTABLE, NLM_F_CREATE);
    netlink_text(n, NFTA_TABLE_NAME, TABLE);
}

int nft_send(struct netlink *n) {
    put_batch(n, NFNL_MSG_BATCH_END);
    return netlink_send(n, NETLINK_NETFILTER);
}

void nft_chain(struct netlink *n, const char *name, unsigned hook, int priority) {
    put_message(n, NFT_MSG_NEWCHAIN, NLM_F_CREATE);
    netlink_text(n, NFTA_CHAIN_TABLE, TABLE);
    netlink_text(n, NFTA_CHAIN_NAME, name);
    size_t at = netlink_open(n, NFTA_CHAIN_HOOK);
    netlink_be32(n, NFTA_HOOK_HOOKNUM, hook);
    netlink_be32(n, NFTA_HOOK_PRIORITY, (uint32_t)priority);
    netlink_close(n, at);
    netlink_text(n, NFTA_CHAIN_TYPE, "filter");
}

size_t nft_rule(struct netlink *n, const char *chain) {
    put_message(n, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND);
    netlink_text(n, NFTA_RULE_TABLE, TABLE);
    netlink_text(n, NFTA_RULE_CHAIN, chain);
    return netlink_open(n, NFTA_RULE_EXPRESSIONS);
}

void nft_match_protocol(struct netlink *n, enum nft_cmp_ops op, uint8_t protocol) {
    struct expression e = expression_open(n, "meta");
    netlink_be32(n, NFTA_META_KEY, NFT_META_L4PROTO);
    netlink_be32(n, NFTA_META_DREG, NFT_REG_1);
    expression_close(n, e);
    put_compare(n, op, &protocol, sizeof(protocol));
}

void nft_match_outside(struct netlink *n) {
    put_payload(n, NFT_PAYLOAD_NETWORK_HEADER, DESTINATION, 1);
    put_compare(n, NFT_CMP_NEQ, &(uint8_t){127}, 1);
}

void nft_match_source(struct netlink *n, enum nft_cmp_ops op, const uint8_t address[4]) {
    put_payload(n, NFT_PAYLOAD_NETWORK_HEADER, SOURCE, 4);
    put_compare(n, op, address, 4);
}

void nft_match_destination(struct netlink *n, enum nft_cmp_ops op, const uint8_t address[4]) {
    put_payload(n, NFT_PAYLOAD_NETWORK_HEADER, DESTINATION, 4);
    put_compare(n, op, address, 4);
}

void nft_match_port(struct netlink *n, enum nft_cmp_ops op, uint16_t port) {
    put_payload(n, NFT_PAYLOAD_TRANSPORT_HEADER, PORT, 2);
    put_compare(n, op, &(uint16_t){htons(port)}, 2);
}

void nft_tproxy(struct netlink *n, const uint8_t address[4], uint16_t port) {
    put_value(n, NFT_REG_1, address, 4);
    put_value(n, NFT_REG_2, &(uint16_t){htons(port)}, 2);
    struct expression e = expression_open(n, "tproxy");
    netlink_be32(n, NFTA_TPROXY_FAMILY, NFPROTO_IPV4);
    netlink_be32(n, NFTA_TPROXY_REG_ADDR, NFT_REG_1);
    netlink_be32(n, NFTA_TPROXY_REG_PORT, NFT_REG_2);
    expression_close(n, e);
}

void nft_verdict(struct netlink *n, uint32_t code) {
    struct expression e = expression_open(n, "immediate");
    netlink_be32(n, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
    size_t data = netlink_open(n, NFTA_IMMEDIATE_DATA);
    size_t verdict = netlink_open(n, NFTA_DATA_VERDICT);
    netlink_be32(n, NFTA_VERDICT_CODE, code);
    netlink_close(n, verdict);
    netlink_close(n, data);
    expression_close(n, e);
}

void nft_reject(struct netlink *n) {
    struct expression e = expression_open(n, "reject");
    netlink_be32(n, NFTA_REJECT_TYPE, NFT_REJECT_ICMP_UNREACH);
    netlink_attr(n, NFTA_REJECT_ICMP_CODE, &(uint8_t){ICMP_PKT_FILTERED}, 1);
    expression_close(n, e);
}
