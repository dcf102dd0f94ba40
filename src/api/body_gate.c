/* What crosses the line of a machine: rules, secrets, grants, ports, approvals. */
#include "api/body_fields.h"
#include "service/net/approvals.h"
#include "service/net/expose.h"
#include "service/net/secrets.h"

static const char *const net_actions[] = {"allow", "deny", "ask", NULL};
static const struct field net_request[] = {
    {"action", FIELD_TEXT, AT(struct net_request, action), "default: allow",
     .choices = net_actions},
    {"target", FIELD_TEXT, AT(struct net_request, target),
     "[http://|https://|tcp://]HOST[:PORT][/PATH]; HOST is a name, *.suffix, an address, or *; "
     "or a preset: apt, npm, pip, cargo, go",
     .required = true, .max = 1023},
    {"methods", FIELD_TEXT, AT(struct net_request, methods), "such as GET,HEAD; needs a scheme",
     .max = 63},
    {"local", FIELD_FLAG, AT(struct net_request, local),
     "also where its address is private, loopback or otherwise not public"},
    {"trusted", FIELD_FLAG, AT(struct net_request, trusted),
     "what it answers is not a stranger's: it does not taint the machine"},
    {"tainted", FIELD_FLAG, AT(struct net_request, tainted),
     "it also holds once a guarded machine is tainted"},
    {"bytes", FIELD_SIZE, AT(struct net_request, bytes), "both ways together, then it is cut",
     .max = 1ull << 50},
    {"rate", FIELD_SIZE, AT(struct net_request, rate), "bytes a second", .max = 1ull << 40},
    {"hold", FIELD_DURATION, AT(struct net_request, hold),
     "ask: how long a request waits (default 2m, at most 290 s)", .max = 290000},
    {"ttl", FIELD_DURATION, AT(struct net_request, ttl), "then the rule ends", .max = DAYS(3650)},
};
const struct schema net_request_schema = SCHEMA("NetRule", struct net_request, net_request);

static const char *const grant_ways[] = {"header", "basic", "query", NULL};
static const struct field secret_grant_request[] = {
    {"name", FIELD_TEXT, AT(struct secret_grant_request, name),
     "of a secret; the variable is called so", .required = true, .max = 63},
    {"host", FIELD_TEXT, AT(struct secret_grant_request, host),
     "the one its value goes to, inside TLS", .required = true, .max = 253},
    {"as", FIELD_TEXT, AT(struct secret_grant_request, as),
     "where it may stand: in a field, as a password, in the query (default: header)",
     .choices = grant_ways},
};
const struct schema secret_grant_request_schema =
    SCHEMA("SecretGrant", struct secret_grant_request, secret_grant_request);

static const char *const grant_kinds[] = {"file",   "env",      "secret",   "repo",
                                          "sqlite", "postgres", "identity", NULL};
static const struct field grant_request[] = {
    {"kind", FIELD_TEXT, AT(struct grant_request, kind), NULL, .required = true,
     .choices = grant_kinds},
    {"what", FIELD_TEXT, AT(struct grant_request, what),
     "a path of the host, whose descriptor comes with the request or which lies under a root of "
     "carrel.conf; or a name; of postgres: that of a secret which holds the address of the server",
     .required = true, .max = PATH_MAX_BYTES},
    {"at", FIELD_TEXT, AT(struct grant_request, at),
     "where it is put in the machine; of a secret: the host it is good for; of an identity: its "
     "mail",
     .max = PATH_MAX_BYTES},
    {"mode", FIELD_TEXT, AT(struct grant_request, mode),
     "of a secret: header (default), basic, query; of a repository, which is handed over as a "
     "bundle: its branch or tag",
     .max = 255},
    {"value", FIELD_TEXT, AT(struct grant_request, value),
     "of a variable; of postgres: the address of the server, in place of a secret's name, as "
     "postgres://USER:PASSWORD@HOST:PORT/TEMPLATE",
     .max = 65536},
    {"expires", FIELD_DURATION, AT(struct grant_request, expires), "then it is taken back",
     .min = 1, .max = DAYS(3650)},
    {"untrusted", FIELD_FLAG, AT(struct grant_request, untrusted),
     "strangers may have written it: it taints the machine"},
};
const struct schema grant_request_schema =
    SCHEMA("GrantRequest", struct grant_request, grant_request);

static const struct field expose_request[] = {
    {"port", FIELD_NUMBER, AT(struct expose_request, port), "inside the machine", .required = true,
     .min = 1, .max = 65535},
};
const struct schema expose_request_schema =
    SCHEMA("ExposeRequest", struct expose_request, expose_request);

static const struct field secret_request[] = {
    {"value", FIELD_TEXT, AT(struct secret_request, value), "8 to 8192 bytes on one line",
     .required = true, .max = 8192},
};
const struct schema secret_request_schema =
    SCHEMA("SecretRequest", struct secret_request, secret_request);

static const struct field network_view[] = {
    {"machine", SHOW_TEXT, 0, NULL, .required = true},
    {"listening", SHOW_FLAG, 0, "whether its gate is open for connections", .required = true},
    {"default", SHOW_TEXT, 0, "deny", .required = true},
    {"guarded", SHOW_FLAG, 0, "whether a taint closes it", .required = true},
    {"tainted", SHOW_TEXT, 0, "the first source that is not trusted that it has read from"},
    {"tainted_ms", SHOW_NUMBER, 0, "when, since 1970"},
    {"warnings", SHOW_TEXT, 0, "private data, texts of strangers and a way out come together"},
    {"rules", SHOW_JSON, 0, "oldest first", .required = true},
};
const struct schema network_schema = SCHEMA("Network", char *, network_view);

static const struct field exposure_view[] = {
    {"machine", SHOW_TEXT, 0, NULL, .required = true},
    {"port", SHOW_NUMBER, 0, NULL, .required = true},
    {"url", SHOW_TEXT, 0, "with the token, for a browser", .required = true},
    {"token", SHOW_TEXT, 0, "shown only now; sent as the field Carrel-Token", .required = true},
};
const struct schema exposure_schema = SCHEMA("Exposure", char *, exposure_view);

static const struct field exposures_view[] = {
    {"machine", SHOW_TEXT, 0, NULL, .required = true},
    {"exposures", SHOW_JSON, 0, "port, url", .required = true},
};
const struct schema exposures_schema = SCHEMA("Exposures", char *, exposures_view);

static const struct field grant_diff_view[] = {
    {"machine", SHOW_TEXT, 0, NULL, .required = true},
    {"grant", SHOW_TEXT, 0, NULL, .required = true},
    {"kind", SHOW_TEXT, 0, "sqlite, postgres", .required = true},
    {"what", SHOW_TEXT, 0, "on the owner's side", .required = true},
    {"at", SHOW_TEXT, 0, "in the machine", .required = true},
    {"same", SHOW_FLAG, 0, "nothing differs from what was handed over"},
    {"diff", SHOW_TEXT, 0,
     "- before and + now; sqlite: schema and rows; postgres: relations, routines, and of each "
     "table "
     "how many rows it has and a sum of what they hold"},
    {"cut", SHOW_FLAG, 0, "there is more than is shown"},
    {"database", SHOW_TEXT, 0, "postgres: its name on the server; it is dropped at the end"},
    {"error", SHOW_TEXT, 0, "postgres: why it is not known what became of it"},
};
const struct schema grant_diff_schema = SCHEMA("GrantDiff", char *, grant_diff_view);

static const struct field secrets_view[] = {
    {"secrets", SHOW_JSON, 0, "name, created_ms, changed_ms, used_ms", .required = true},
};
const struct schema secrets_schema = SCHEMA("Secrets", char *, secrets_view);

static const struct field grants_view[] = {
    {"machine", SHOW_TEXT, 0, NULL, .required = true},
    {"warnings", SHOW_TEXT, 0, "private data, texts of strangers and a way out come together"},
    {"grants", SHOW_JSON, 0, "id, kind, what, at, mode, created_ms, expires_ms, detail",
     .required = true},
};
const struct schema grants_schema = SCHEMA("Grants", char *, grants_view);

static const char *const decisions[] = {"approve", "deny", NULL};
static const struct field approval_request[] = {
    {"decision", FIELD_TEXT, AT(struct approval_request, decision), NULL, .required = true,
     .choices = decisions},
    {"always", FIELD_FLAG, AT(struct approval_request, always),
     "and the rule that the item shows as `always`"},
    {"ttl", FIELD_DURATION, AT(struct approval_request, ttl), "the same, for so long", .min = 1,
     .max = DAYS(3650)},
};
const struct schema approval_request_schema =
    SCHEMA("Approval", struct approval_request, approval_request);

static const struct field pendings_view[] = {
    {"pending", SHOW_JSON, 0,
     "id, machine, host, port, protocol, method, path, query, body, body_sha256, rule, always or "
     "no_rule, left_ms ...",
     .required = true},
};
const struct schema pendings_schema = SCHEMA("Pending", char *, pendings_view);

static const struct field decided_view[] = {
    {"rule", SHOW_NUMBER, 0, "the number of the rule that was added"},
    {"added", SHOW_TEXT, 0, "that rule, in words"},
};
const struct schema decided_schema = SCHEMA("Decided", char *, decided_view);
