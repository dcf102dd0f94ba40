/* The network of a sandbox: the rules that its client asks for, within what carrel.conf says. */
#include <string.h>

#include "api/e2b/inner.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "service/net/net.h"

struct network_body {
    const json_t *allow_out, *deny_out, *rules, *proxy;
    bool internet;
};

#define AT(member) offsetof(struct network_body, member)
static const struct field network_fields[] = {
    {"allowOut", FIELD_JSON, AT(allow_out), "hosts"},
    {"denyOut", FIELD_JSON, AT(deny_out), "hosts"},
    {"rules", FIELD_JSON, AT(rules), "not supported"},
    {"egressProxy", FIELD_JSON, AT(proxy), "not supported"},
    {"allow_internet_access", FIELD_FLAG, AT(internet), "default: true"},
};
#undef AT
const struct schema e2b_network_schema = SCHEMA("E2bNetwork", struct network_body, network_fields);

/* ---- reading ---- */

enum { ASKED_MS = 290000 }; /* how long the owner can approve a refused request */

static int add_rule(struct e2b_network *n, const char *action, const char *target, const char *from,
                    struct err *err) {
    if (n->count == E2B_RULES_MAX)
        return err_set(err, ERR_INVALID, "field 'network' has more than %d rules", E2B_RULES_MAX);
    n->rules[n->count++] = (struct net_request){
        .action = action, .target = target, .from = from, .hold = {ASKED_MS, true}};
    return 0;
}

static int add_hosts(struct e2b_network *n, const char *action, const json_t *hosts,
                     struct err *err) {
    const json_t *host;
    size_t i;
    if (hosts && !json_is_null(hosts) && !json_is_array(hosts))
        return err_set(err, ERR_INVALID, "field 'network' must have lists of hosts");
    json_array_foreach(hosts, i, host) {
        const char *text = json_string_value(host);
        if (!text)
            return err_set(err, ERR_INVALID, "field 'network' has a host that is not a text");
        bool is_all = strcmp(text, "0.0.0.0/0") == 0;
        if (add_rule(n, action, is_all ? "*" : text, "client", err) < 0)
            return -1;
    }
    return 0;
}

static int check_network(const json_t *network, struct err *err) {
    static const char *const keys[] = {"rules", "egressProxy", "maskRequestHost", "httpsPorts"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
        const json_t *v = json_object_get(network, keys[i]);
        if (v && !json_is_null(v))
            return err_set(err, ERR_INVALID, "field 'network.%s' is not supported", keys[i]);
    }
    return 0;
}

/* The newest rule decides, and what a client allows wins over what it denies. */
int e2b_network_read(const struct conf *conf, const json_t *network, bool is_off,
                     struct e2b_network *ret, struct err *err) {
    const char *most = conf->e2b_internet;
    bool is_denied = strcmp(most, "deny") == 0;
    *ret = (struct e2b_network){.has_internet = !is_off && strcmp(most, "allow") == 0};
    if (check_network(network, err) < 0)
        return -1;
    if (add_rule(ret, is_off ? "deny" : most, "*", is_denied || !is_off ? "conf" : "client", err) <
        0)
        return -1;
    if (is_denied)
        return 0;
    return add_hosts(ret, "deny", json_object_get(network, "denyOut"), err) < 0
               ? -1
               : add_hosts(ret, most, json_object_get(network, "allowOut"), err);
}

/* ---- changing ---- */

/* Stores c->sandbox.own in the metadata of the machine, which has keys of others too. */
static void machine_came(void *arg, const struct machine_view *v, const struct err *failed) {
    struct e2b_call *c = arg;
    if (failed) {
        e2b_error(c, failed);
        return;
    }
    json_t *all DEFER(json_decrefp) = json_loads(v->metadata, 0, NULL), *value;
    char *own DEFER_FREE = json_dumps(c->sandbox.own, JSON_COMPACT);
    const char *name;
    json_object_set_new(all, E2B_KEY_OWN, json_string(own));
    struct update_request r = {.metadata.v =
                                   xcalloc(2 * json_object_size(all) + 1, sizeof(*r.metadata.v))};
    json_object_foreach(all, name, value) {
        r.metadata.v[r.metadata.count++] = name;
        r.metadata.v[r.metadata.count++] = json_string_value(value);
    }
    service_update(c->service, &c->who, c->sandbox.id, &r, e2b_changed, c);
    free(r.metadata.v);
}

static void network_changed(void *arg, const char *json, const struct err *failed) {
    struct e2b_call *c = arg;
    (void)json;
    if (failed)
        e2b_error(c, failed);
    else
        service_show(c->service, &c->who, c->sandbox.id, machine_came, c);
}

/* Everything that the body leaves out is cleared. */
void e2b_network_put(struct e2b_call *c) {
    struct e2b_network *n DEFER_FREE = xnew(struct e2b_network);
    bool is_off = json_is_false(json_object_get(c->body, "allow_internet_access"));
    struct err err;
    if (e2b_network_read(service_conf(c->service), c->body, is_off, n, &err) < 0) {
        e2b_error(c, &err);
        return;
    }
    const struct rows rules = {n->rules, n->count};
    json_object_set_new(c->sandbox.own, "internet", json_boolean(n->has_internet));
    service_net_set_given(c->service, &c->who, c->sandbox.id, &rules, network_changed, c);
}
