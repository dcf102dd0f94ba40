/*
 * The network policy of a machine: rules, and the function that decides.
 *
 * The newest matching rule decides; without a match the answer is deny. The destination, protocol
 * and request become known step by step, so the answer may also be that more must be known. Pure,
 * except for the JSON form of rules.
 *
 * A target is written [SCHEME://]HOST[:PORT][/PATH]:
 *   HOST is a name, *.suffix (all names below it), an address, or * (anything), or without
 *   http:// and https:// a range of IPv4 addresses such as 10.1.2.0/24;
 *   SCHEME is http, https or tcp; without one HTTP and TLS, detected from the first bytes;
 *   PORT defaults to 80 for HTTP and 443 for TLS; tcp needs one;
 *   PATH, with http and https only, is a prefix of whole segments.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/jot.h"
#include "gate/name.h"

enum {
    POLICY_RULES_MAX = 256,
    POLICY_SHOWN_MAX = 16,
    POLICY_PATH_SIZE = 256,
    POLICY_METHODS_SIZE = 64,
    POLICY_QUERY_SIZE = 256
};
enum { POLICY_TARGET_SIZE = NAME_SIZE + POLICY_PATH_SIZE + 24 };
enum { POLICY_PRESET_SIZE = 16, POLICY_FROM_SIZE = 16 };
enum { POLICY_HOLD_MS = 120000, POLICY_HOLD_MAX_MS = 290000 };

enum policy_action { POLICY_DENY, POLICY_ALLOW, POLICY_ASK };
const char *policy_action_name(enum policy_action action);
int policy_action_parse(const char *text, enum policy_action *ret, struct err *err);

/* The protocol of a connection; in a rule PROTOCOL_WEB means HTTP and TLS. */
enum policy_protocol { PROTOCOL_WEB, PROTOCOL_HTTP, PROTOCOL_TLS, PROTOCOL_TCP };
const char *policy_protocol_name(enum policy_protocol protocol);

enum policy_host { HOST_EXACT, HOST_BELOW, HOST_ANY, HOST_RANGE };

struct policy_rule {
    uint64_t id; /* unique within the machine, never reused */
    enum policy_action action;
    enum policy_protocol protocol;
    enum policy_host host_kind;
    char host[NAME_SIZE];
    uint16_t port; /* 0: the default port of the protocol */
    char path[POLICY_PATH_SIZE];
    char methods[POLICY_METHODS_SIZE]; /* "GET,POST"; empty: all */
    bool exact;                        /* the rule matches only this path with this query */
    char query[POLICY_QUERY_SIZE];     /* with `exact`: the query, without "?"; empty: none */
    bool local;                        /* the rule also allows addresses that are not public */
    uint64_t bytes_max;                /* limit for both directions together; 0: no limit */
    uint64_t rate;                     /* bytes per second; 0: no limit */
    uint64_t hold_ms;                  /* POLICY_ASK: how long a request waits; 0: POLICY_HOLD_MS */
    int64_t expires_ms;                /* ms since 1970; 0: never */
    char preset[POLICY_PRESET_SIZE];   /* the preset that added the rule; empty: none */
    /* "client": a client whose network carrel.conf limits gave the rule. "conf": carrel.conf did.
     * Empty: the owner. */
    char from[POLICY_FROM_SIZE];
    bool trusted;        /* data from this target does not taint; presets are trusted too */
    bool tainted;        /* the rule also applies once the machine is tainted */
    uint64_t bytes_used; /* bytes counted since the daemon started */
    uint64_t busy_ms;    /* for `rate`: no bytes are allowed before this time */
};

struct policy {
    struct policy_rule *rules; /* oldest first */
    size_t count;
    uint64_t last_id;
    /*
     * The first untrusted source that a machine reaches taints it permanently (marks it as having
     * read untrusted data). A guarded machine can then reach only what was granted for that case:
     * requests of presets that installing packages needs, rules with `tainted`, and requests that
     * the owner approves one by one. Its exposed ports are no longer served.
     */
    bool guarded;
    char tainted[NAME_SIZE]; /* the untrusted source that tainted the machine; empty: not tainted */
    int64_t tainted_ms;
    uint16_t shown[POLICY_SHOWN_MAX]; /* ports that the owner exposed after the taint */
    size_t shown_count;
};

/* Records that the machine reached `host` by this rule. Returns true if that tainted the
 * machine. */
bool policy_taint(struct policy *p, uint64_t rule, const char *host, int64_t now_ms);
/* True if the machine is guarded and tainted. */
bool policy_is_closed(const struct policy *p);
/* Whether an exposed port is served; policy_show() records the owner's decision. */
bool policy_shows(const struct policy *p, uint16_t port);
void policy_show(struct policy *p, uint16_t port, bool shows);

void policy_done(struct policy *p);

/* Parses a target: sets host, protocol, port and path of the rule and keeps its other members. */
int policy_target_read(const char *text, struct policy_rule *ret, struct err *err);
void policy_target_write(const struct policy_rule *rule, char ret[POLICY_TARGET_SIZE]);
/* Checks a list of methods and converts it to upper case. */
int policy_methods_read(const char *text, char ret[POLICY_METHODS_SIZE], struct err *err);

/* Adds the rule as the newest and removes an older one with the same target and methods. */
int policy_add(struct policy *p, struct policy_rule *rule, struct err *err);
struct policy_rule *policy_find(const struct policy *p, uint64_t id); /* NULL: no such rule */
/* Replaces the rules that have `from` by those of `given`. These become the oldest, so that what
 * the owner decided wins over them. Nothing changes if there are too many. */
int policy_set_given(struct policy *p, const struct policy *given, struct err *err);
/* Removes the rule with this id; ERR_NOT_FOUND if it does not exist. */
int policy_remove(struct policy *p, uint64_t id, struct err *err);

/* Writes the policy as one JSON object, {"rules":[...]}. policy_read() reads it again and refuses
 * unknown members and invalid values. */
void policy_write(const struct policy *p, struct jot *j, const char *name);
/* Writes only the JSON members about the guard and the taint. */
void policy_taint_write(const struct policy *p, struct jot *j);
void policy_rule_write(const struct policy_rule *rule, struct jot *j, const char *name);
int policy_read(const char *json, struct policy *ret, struct err *err);

struct policy_query {
    const char *host; /* a host name, or an address when the machine used one */
    uint16_t port;
    bool knows_protocol;
    enum policy_protocol protocol; /* HTTP, TLS or TCP */
    const char *method;            /* NULL: no request is known yet */
    const char *path;              /* path of the request, not decoded, without query */
    const char *query;             /* query of the request, not decoded, without "?"; NULL: none */
    int64_t now_ms;
};

enum policy_want { POLICY_KNOWN, POLICY_WANTS_PROTOCOL, POLICY_WANTS_REQUEST };

struct policy_answer {
    enum policy_want want;
    enum policy_action action; /* valid if `want` is POLICY_KNOWN */
    struct policy_rule *rule;  /* NULL: no rule matches */
    const char *why;           /* reason of a denial */
    bool by_taint;             /* denied only because the machine is tainted */
};

/* Whether a request that needs an approval is refused until the owner has given it. It waits
 * otherwise. Clients of a face (`from`) take a long wait for a fault. */
#define POLICY_NOT_YET "the owner has not approved this request yet"
bool policy_asks_first(const struct policy_rule *r);

struct policy_answer policy_decide(const struct policy *p, const struct policy_query *q);

/*
 * Finds the rule that denies a connection because of the address that its host, a name or an
 * address, leads to. `allowed` is the id of the rule that allowed it. Among newer rules the newest
 * one for the address or a range with it decides. NULL: the connection may be made.
 */
const struct policy_rule *policy_denies_address(const struct policy *p, uint64_t allowed,
                                                const struct policy_query *q,
                                                const struct sockaddr *to);

/* Whether some rule allows anything now, perhaps after an approval. */
bool policy_allows_any(const struct policy *p, int64_t now_ms);

/* Which parts of requests the matching rules check, whatever they decide. */
struct policy_care {
    bool methods, paths;
};
struct policy_care policy_cares(const struct policy *p, const struct policy_query *q);
