#include "gate/policy.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/parse.h"
#include "gate/address.h"
#include "gate/installing.h"
#include "gate/path.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

enum { PORT_HTTP = 80, PORT_TLS = 443 };

/* ---- names ---- */

static const char *const actions[] = {"deny", "allow", "ask"};
static const char *const protocols[] = {"web", "http", "tls", "tcp"};

const char *policy_action_name(enum policy_action action) {
    return actions[action];
}

int policy_action_parse(const char *text, enum policy_action *ret, struct err *err) {
    for (size_t i = 0; i < COUNT(actions); i++)
        if (strcmp(text, actions[i]) == 0) {
            *ret = (enum policy_action)i;
            return 0;
        }
    return err_set(err, ERR_INVALID,
                   "the action '%.40s' of a network rule is not allow, deny or ask", text);
}

const char *policy_protocol_name(enum policy_protocol protocol) {
    return protocols[protocol];
}

/* ---- targets ---- */

static const struct scheme {
    const char *text;
    enum policy_protocol protocol;
} schemes[] = {
    {"http://", PROTOCOL_HTTP},
    {"https://", PROTOCOL_TLS},
    {"tcp://", PROTOCOL_TCP},
    {"", PROTOCOL_WEB},
};

static int read_range(const char *host, size_t n, struct policy_rule *r) {
    struct address_range range;
    if (!address_range_read(host, n, &range))
        return -1;
    uint32_t a = range.net;
    int length = snprintf(r->host, sizeof(r->host), "%u.%u.%u.%u", a >> 24, a >> 16 & 255,
                          a >> 8 & 255, a & 255);
    r->host_kind = range.bits == 32 ? HOST_EXACT : HOST_RANGE;
    if (range.bits < 32)
        snprintf(r->host + length, sizeof(r->host) - (size_t)length, "/%u", range.bits);
    return 0;
}

static int read_host(const char *host, size_t n, struct policy_rule *r) {
    char address[ADDRESS_TEXT_SIZE];
    if (n == 1 && host[0] == '*') {
        r->host_kind = HOST_ANY;
        snprintf(r->host, sizeof(r->host), "*");
        return 0;
    }
    if (memchr(host, '/', n))
        return read_range(host, n, r);
    r->host_kind = n > 2 && host[0] == '*' && host[1] == '.' ? HOST_BELOW : HOST_EXACT;
    if (r->host_kind == HOST_BELOW)
        return name_read(host + 2, n - 2, r->host) ? 0 : -1;
    if (n > 2 && host[0] == '[' && host[n - 1] == ']') {
        host++;
        n -= 2;
    }
    if (address_read(host, n, address)) {
        snprintf(r->host, sizeof(r->host), "%s", address);
        return 0;
    }
    return name_read(host, n, r->host) ? 0 : -1;
}

/* Returns the length of the host, which ends at the port, the path or the end of the text. Where a
 * target has no path, a '/' after an IPv4 address belongs to a range. */
static size_t host_length(const char *text, enum policy_protocol protocol) {
    struct address_range range;
    if (text[0] == '[') {
        const char *end = strchr(text, ']');
        return end ? (size_t)(end - text) + 1 : 0;
    }
    size_t n = strcspn(text, ":/");
    bool has_path = protocol == PROTOCOL_HTTP || protocol == PROTOCOL_TLS;
    return !has_path && address_range_read(text, n, &range) ? strcspn(text, ":") : n;
}

static int bad_target(const char *text, const char *why, struct err *err) {
    err_set(err, ERR_INVALID, "'%.120s' is not a valid target of a network rule: %s", text, why);
    return err_remedy(err, "write [http://|https://|tcp://]HOST[:PORT][/PATH]; HOST is a name, "
                           "*.suffix, an address, or without http:// and https:// a range of "
                           "IPv4 addresses such as 10.1.2.0/24");
}

static int read_path(const char *text, const char *path, struct policy_rule *r, struct err *err) {
    if (!*path)
        return 0;
    if (r->protocol == PROTOCOL_WEB || r->protocol == PROTOCOL_TCP)
        return bad_target(text, "a target with a path must begin with http:// or https://", err);
    if (strlen(path) >= sizeof(r->path) || !path_is_plain(path) || strpbrk(path, "?#"))
        return bad_target(text, "the path is too long or ambiguous, or has a '?'", err);
    if (strcmp(path, "/") != 0)
        snprintf(r->path, sizeof(r->path), "%s", path);
    return 0;
}

int policy_target_read(const char *text, struct policy_rule *ret, struct err *err) {
    struct policy_rule r = *ret;
    const struct scheme *s = schemes;
    uint64_t port = 0;
    while (strncasecmp(text, s->text, strlen(s->text)) != 0)
        s++;
    const char *host = text + strlen(s->text);
    r.protocol = s->protocol;
    size_t n = host_length(host, r.protocol);
    r.path[0] = '\0';
    if (read_host(host, n, &r) < 0)
        return bad_target(text, "the host is not a valid name or address", err);
    const char *rest = host + n;
    if (*rest == ':') {
        char number[8];
        size_t digits = strcspn(++rest, "/");
        snprintf(number, sizeof(number), "%.*s", (int)(digits < 7 ? digits : 7), rest);
        if (parse_u64(number, 1, 65535, &port, NULL) < 0)
            return bad_target(text, "the port must be 1 to 65535", err);
        rest += digits;
    }
    if (r.protocol == PROTOCOL_TCP && !port)
        return bad_target(text, "a target that begins with tcp:// needs a port", err);
    if (read_path(text, rest, &r, err) < 0)
        return -1;
    r.port = (uint16_t)port;
    *ret = r;
    return 0;
}

void policy_target_write(const struct policy_rule *r, char ret[POLICY_TARGET_SIZE]) {
    const struct scheme *s = schemes;
    while (s->protocol != r->protocol)
        s++;
    bool six = strchr(r->host, ':') != NULL;
    int n =
        snprintf(ret, POLICY_TARGET_SIZE, "%s%s%s%s%s", s->text,
                 r->host_kind == HOST_BELOW ? "*." : "", six ? "[" : "", r->host, six ? "]" : "");
    if (r->port)
        n += snprintf(ret + n, POLICY_TARGET_SIZE - (size_t)n, ":%u", r->port);
    snprintf(ret + n, POLICY_TARGET_SIZE - (size_t)n, "%s", r->path);
}

int policy_methods_read(const char *text, char ret[POLICY_METHODS_SIZE], struct err *err) {
    size_t n = strlen(text), run = 0;
    if (n >= POLICY_METHODS_SIZE)
        return err_set(err, ERR_LIMIT, "the list of methods of a rule is longer than %d characters",
                       POLICY_METHODS_SIZE - 1);
    for (size_t i = 0; i <= n; i++) {
        char c = text[i];
        if ((c == ',' || c == '\0') && n) {
            if (!run)
                return err_set(err, ERR_INVALID,
                               "'%s' is not a list of HTTP methods such as GET,POST", text);
            run = 0;
        } else if (c && !isalpha((unsigned char)c)) {
            return err_set(err, ERR_INVALID, "'%s' is not a list of HTTP methods such as GET,POST",
                           text);
        } else {
            run++;
        }
        ret[i] = (char)toupper((unsigned char)c);
    }
    return 0;
}

/* ---- rules ---- */

void policy_done(struct policy *p) {
    free(p->rules);
    *p = (struct policy){.rules = NULL};
}

static void remove_at(struct policy *p, size_t i) {
    p->count--;
    memmove(p->rules + i, p->rules + i + 1, (p->count - i) * sizeof(*p->rules));
}

static bool same_target(const struct policy_rule *a, const struct policy_rule *b) {
    return a->protocol == b->protocol && a->host_kind == b->host_kind && a->port == b->port &&
           strcmp(a->host, b->host) == 0 && strcmp(a->path, b->path) == 0 &&
           strcmp(a->methods, b->methods) == 0 && a->exact == b->exact &&
           strcmp(a->query, b->query) == 0;
}

static int check_rule(const struct policy_rule *r, struct err *err) {
    if (r->exact && (r->protocol == PROTOCOL_WEB || r->protocol == PROTOCOL_TCP))
        return err_set(
            err, ERR_INVALID,
            "a rule with an exact path requires a target that begins with http:// or https://");
    if (r->methods[0] && (r->protocol == PROTOCOL_WEB || r->protocol == PROTOCOL_TCP)) {
        err_set(err, ERR_INVALID,
                "a rule with methods requires a target that begins with http:// or https://");
        return -1;
    }
    if (r->hold_ms > POLICY_HOLD_MAX_MS)
        return err_set(err, ERR_INVALID, "a request can wait for approval for at most %d s",
                       POLICY_HOLD_MAX_MS / 1000);
    return 0;
}

static int too_many_rules(struct err *err) {
    return err_set(err, ERR_LIMIT, "a machine can have at most %d network rules", POLICY_RULES_MAX);
}

int policy_add(struct policy *p, struct policy_rule *rule, struct err *err) {
    if (check_rule(rule, err) < 0)
        return -1;
    for (size_t i = p->count; i-- > 0;)
        if (same_target(&p->rules[i], rule))
            remove_at(p, i);
    if (p->count == POLICY_RULES_MAX)
        return too_many_rules(err);
    struct policy_rule *grown = xrealloc(p->rules, p->count + 1, sizeof(*grown));
    p->rules = grown;
    rule->id = ++p->last_id;
    p->rules[p->count++] = *rule;
    return 0;
}

int policy_set_given(struct policy *p, const struct policy *given, struct err *err) {
    size_t kept = 0, count = given->count;
    for (size_t i = 0; i < p->count; i++)
        kept += !p->rules[i].from[0];
    if (kept + count > POLICY_RULES_MAX)
        return too_many_rules(err);
    struct policy_rule *rules = xcalloc(kept + count + 1, sizeof(*rules));
    for (size_t i = 0; i < count; i++) {
        rules[i] = given->rules[i];
        rules[i].id = ++p->last_id;
    }
    for (size_t i = 0; i < p->count; i++)
        if (!p->rules[i].from[0])
            rules[count++] = p->rules[i];
    free(p->rules);
    p->rules = rules;
    p->count = count;
    return 0;
}

struct policy_rule *policy_find(const struct policy *p, uint64_t id) {
    for (size_t i = 0; i < p->count; i++)
        if (p->rules[i].id == id)
            return &p->rules[i];
    return NULL;
}

int policy_remove(struct policy *p, uint64_t id, struct err *err) {
    for (size_t i = 0; i < p->count; i++)
        if (p->rules[i].id == id) {
            remove_at(p, i);
            return 0;
        }
    return err_set(err, ERR_NOT_FOUND, "network rule %" PRIu64 " does not exist", id);
}

/* ---- deciding ---- */

static bool has_address(const struct policy_rule *r, const struct sockaddr *a) {
    struct address_range range;
    return (r->host_kind == HOST_RANGE || r->host_kind == HOST_EXACT) &&
           address_range_read(r->host, strlen(r->host), &range) && address_range_has(&range, a);
}

static bool is_in_range(const struct policy_rule *r, const char *host) {
    struct sockaddr_in a = {.sin_family = AF_INET};
    return inet_pton(AF_INET, host, &a.sin_addr) == 1 &&
           has_address(r, (const struct sockaddr *)&a);
}

static bool fits_host(const struct policy_rule *r, const char *host) {
    return r->host_kind == HOST_ANY     ? true
           : r->host_kind == HOST_RANGE ? is_in_range(r, host)
           : r->host_kind == HOST_BELOW ? name_is_below(host, r->host)
                                        : strcmp(host, r->host) == 0;
}

/* Before the protocol is known, the default port of HTTP or of TLS is enough. */
static bool fits_port(const struct policy_rule *r, const struct policy_query *q) {
    if (r->port)
        return r->port == q->port;
    bool http = r->protocol != PROTOCOL_TLS && (!q->knows_protocol || q->protocol == PROTOCOL_HTTP);
    bool tls = r->protocol != PROTOCOL_HTTP && (!q->knows_protocol || q->protocol == PROTOCOL_TLS);
    return (http && q->port == PORT_HTTP) || (tls && q->port == PORT_TLS);
}

static bool fits_protocol(const struct policy_rule *r, const struct policy_query *q) {
    if (r->protocol == PROTOCOL_TCP || !q->knows_protocol)
        return true;
    return r->protocol == q->protocol ||
           (r->protocol == PROTOCOL_WEB && q->protocol < PROTOCOL_TCP);
}

static bool fits_method(const struct policy_rule *r, const char *method) {
    size_t n = strlen(method);
    for (const char *at = r->methods; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == n && strncmp(at, method, n) == 0)
            return true;
    return !r->methods[0];
}

static bool fits_exactly(const struct policy_rule *r, const struct policy_query *q) {
    return strcmp(r->path[0] ? r->path : "/", q->path) == 0 &&
           strcmp(r->query, q->query ? q->query : "") == 0;
}

static bool fits_path(const struct policy_rule *r, const struct policy_query *q) {
    const char *path = q->path;
    size_t n = strlen(r->path);
    if (r->exact)
        return fits_exactly(r, q);
    if (!n)
        return true;
    if (strncmp(path, r->path, n) != 0)
        return false;
    return r->path[n - 1] == '/' || path[n] == '/' || path[n] == '\0';
}

static bool asks_for_request(const struct policy_rule *r) {
    return r->methods[0] || r->path[0] || r->exact;
}

static struct policy_answer want(enum policy_want what, struct policy_rule *r) {
    return (struct policy_answer){.want = what, .rule = r};
}

static bool is_trusted(const struct policy_rule *r) {
    return r->trusted || r->preset[0];
}

bool policy_taint(struct policy *p, uint64_t rule, const char *host, int64_t now_ms) {
    const struct policy_rule *r = policy_find(p, rule);
    if (p->tainted[0] || (r && is_trusted(r)))
        return false;
    snprintf(p->tainted, sizeof(p->tainted), "%s", host);
    p->tainted_ms = now_ms;
    return true;
}

bool policy_is_closed(const struct policy *p) {
    return p->guarded && p->tainted[0];
}

static uint16_t *find_shown(struct policy *p, uint16_t port) {
    for (size_t i = 0; i < p->shown_count; i++)
        if (p->shown[i] == port)
            return &p->shown[i];
    return NULL;
}

bool policy_shows(const struct policy *p, uint16_t port) {
    return !policy_is_closed(p) || find_shown((struct policy *)p, port);
}

void policy_show(struct policy *p, uint16_t port, bool shows) {
    uint16_t *at = find_shown(p, port);
    if (shows && !at && p->shown_count < POLICY_SHOWN_MAX)
        p->shown[p->shown_count++] = port;
    else if (!shows && at)
        *at = p->shown[--p->shown_count];
}

static bool loses_by_taint(const struct policy *p, const struct policy_rule *r) {
    return policy_is_closed(p) && r->action == POLICY_ALLOW && !r->tainted;
}

static bool closed_by_taint(const struct policy *p, const struct policy_rule *r) {
    return loses_by_taint(p, r) && !r->preset[0];
}

/* In a tainted machine a rule of a package preset allows only requests that installing packages
 * needs. */
static bool installs_only(const struct policy *p, const struct policy_rule *r) {
    return loses_by_taint(p, r) && r->preset[0] && installing_is(r->preset);
}

static struct policy_answer policy_refuse(struct policy_rule *r, const char *why, bool by_taint) {
    return (struct policy_answer){
        .action = POLICY_DENY, .rule = r, .why = why, .by_taint = by_taint};
}

static bool fits_connection(const struct policy_rule *r, const struct policy_query *q) {
    return fits_port(r, q) && fits_protocol(r, q) && (!r->expires_ms || r->expires_ms > q->now_ms);
}

static bool policy_fits(const struct policy_rule *r, const struct policy_query *q) {
    return fits_host(r, q->host) && fits_connection(r, q);
}

/* An IPv6 address can lead to an IPv4 one in ways that this host does not know (NAT64, 6to4), so
 * each range that is denied is taken to have it. An IPv6 address in a rule is compared as text. */
static bool leads_to(const struct policy_rule *r, const struct sockaddr *to, const char *text) {
    struct address_range four;
    if (address_kind_of(to) == ADDRESS_MAPPED && r->action == POLICY_DENY)
        return r->host_kind == HOST_RANGE || address_range_read(r->host, strlen(r->host), &four);
    return has_address(r, to) || (r->host_kind == HOST_EXACT && strcmp(r->host, text) == 0);
}

const struct policy_rule *policy_denies_address(const struct policy *p, uint64_t allowed,
                                                const struct policy_query *q,
                                                const struct sockaddr *to) {
    char text[ADDRESS_TEXT_SIZE];
    address_text(to, text);
    for (size_t i = p->count; i-- > 0 && p->rules[i].id != allowed;) {
        const struct policy_rule *r = &p->rules[i];
        if (leads_to(r, to, text) && fits_connection(r, q) && !asks_for_request(r))
            return r->action == POLICY_DENY ? r : NULL;
    }
    return NULL;
}

bool policy_allows_any(const struct policy *p, int64_t now_ms) {
    for (size_t i = 0; i < p->count; i++) {
        const struct policy_rule *r = &p->rules[i];
        if (r->action != POLICY_DENY && !closed_by_taint(p, r) &&
            (!r->expires_ms || r->expires_ms > now_ms))
            return true;
    }
    return false;
}

struct policy_care policy_cares(const struct policy *p, const struct policy_query *q) {
    struct policy_care care = {false, false};
    for (size_t i = 0; i < p->count; i++)
        if (policy_fits(&p->rules[i], q)) {
            bool installs = installs_only(p, &p->rules[i]);
            care.methods |= p->rules[i].methods[0] || installs;
            care.paths |= p->rules[i].path[0] || p->rules[i].exact || installs;
        }
    return care;
}

bool policy_asks_first(const struct policy_rule *r) {
    return r->from[0];
}

struct policy_answer policy_decide(const struct policy *p, const struct policy_query *q) {
    for (size_t i = p->count; i-- > 0;) {
        struct policy_rule *r = &p->rules[i];
        if (!policy_fits(r, q))
            continue;
        if (r->protocol != PROTOCOL_TCP && !q->knows_protocol)
            return want(POLICY_WANTS_PROTOCOL, r);
        bool installs = installs_only(p, r);
        if (asks_for_request(r) || installs) {
            if (!q->method)
                return want(POLICY_WANTS_REQUEST, r);
            if ((r->path[0] || r->exact) && !path_is_plain(q->path))
                return policy_refuse(r, "the path of the request is ambiguous", false);
            if (!fits_method(r, q->method) || !fits_path(r, q))
                continue;
        }
        if (closed_by_taint(p, r))
            return policy_refuse(r, "this machine has read data from an untrusted source", true);
        const char *why = installs ? installing_refuses(r->preset, q->method, q->path) : NULL;
        if (why)
            return policy_refuse(r, why, true);
        return (struct policy_answer){.action = r->action,
                                      .rule = r,
                                      .why = r->action == POLICY_DENY ? "denied by a rule" : NULL};
    }
    return (struct policy_answer){.action = POLICY_DENY, .why = "no rule allows the request"};
}
