/* Schemas of what enters or leaves a machine: network rules, secrets, grants, ports, approvals. */
#include "api/body_fields.h"
#include "service/models/models.h"
#include "service/net/approvals.h"
#include "service/net/expose.h"
#include "service/net/secrets.h"

static const char *const net_actions[] = {"allow", "deny", "ask", NULL};
static const struct field net_request[] = {
    {"action", FIELD_TEXT, AT(struct net_request, action), "action of the rule (default: allow)",
     .choices = net_actions},
    {"target", FIELD_TEXT, AT(struct net_request, target),
     "[http://|https://|tcp://]HOST[:PORT][/PATH]; HOST is a name, *.suffix, an address, a range "
     "of IPv4 addresses, or *; or a preset: apt, npm, pip, cargo, go",
     .required = true, .max = 1023},
    {"methods", FIELD_TEXT, AT(struct net_request, methods),
     "HTTP methods, such as GET,HEAD; requires http:// or https:// in `target`", .max = 63},
    {"local", FIELD_FLAG, AT(struct net_request, local),
     "also allow private, loopback and other non-public addresses"},
    {"trusted", FIELD_FLAG, AT(struct net_request, trusted),
     "responses are trusted: they do not taint the machine (mark it as having read untrusted "
     "data)"},
    {"tainted", FIELD_FLAG, AT(struct net_request, tainted),
     "keep this rule after a guarded machine has read untrusted data (is tainted)"},
    {"bytes", FIELD_SIZE, AT(struct net_request, bytes),
     "limit of the bytes sent plus received under this rule; then the connection is cut",
     .max = 1ull << 50},
    {"rate", FIELD_SIZE, AT(struct net_request, rate),
     "limit of bytes per second, for all connections under this rule together", .max = 1ull << 40},
    {"hold", FIELD_DURATION, AT(struct net_request, hold),
     "ask: how long a request waits for approval (default 2m, at most 290 s)", .max = 290000},
    {"ttl", FIELD_DURATION, AT(struct net_request, ttl), "delete the rule after this time",
     .max = DAYS(3650)},
};
const struct schema net_request_schema = SCHEMA("NetRule", struct net_request, net_request);

static const char *const grant_ways[] = {"header", "basic", "query", NULL};
static const struct field secret_grant_request[] = {
    {"name", FIELD_TEXT, AT(struct secret_grant_request, name),
     "name of the secret and of the environment variable", .required = true, .max = 63},
    {"host", FIELD_TEXT, AT(struct secret_grant_request, host),
     "the only host that receives the value of the secret, inside TLS", .required = true,
     .max = 253},
    {"as", FIELD_TEXT, AT(struct secret_grant_request, as),
     "where a request may carry the secret: header (default), password (basic) or query",
     .choices = grant_ways},
};
const struct schema secret_grant_request_schema =
    SCHEMA("SecretGrant", struct secret_grant_request, secret_grant_request);

static const char *const grant_kinds[] = {"file",     "env",      "secret", "repo", "sqlite",
                                          "postgres", "identity", "login",  NULL};
static const struct field grant_request[] = {
    {"kind", FIELD_TEXT, AT(struct grant_request, kind), NULL, .required = true,
     .choices = grant_kinds},
    {"what", FIELD_TEXT, AT(struct grant_request, what),
     "granted object: path on the host, sent with a descriptor or below a root of carrel.conf; or "
     "a name; "
     "postgres: name of the secret that holds the server URL; login: claude or codex",
     .required = true, .max = PATH_MAX_BYTES},
    {"at", FIELD_TEXT, AT(struct grant_request, at),
     "path in the machine; secret: host that receives it; identity: e-mail address",
     .max = PATH_MAX_BYTES},
    {"mode", FIELD_TEXT, AT(struct grant_request, mode),
     "secret: header (default), basic or query; repo: branch or tag (granted as a bundle)",
     .max = 255},
    {"value", FIELD_TEXT, AT(struct grant_request, value),
     "env: value of the variable; repo: default author of commits, NAME <MAIL> (default: agent "
     "<agent@agents.invalid>); postgres: server URL instead of a secret, "
     "postgres://USER:PASSWORD@HOST:PORT/TEMPLATE",
     .max = 65536},
    {"expires", FIELD_DURATION, AT(struct grant_request, expires),
     "revoke the grant after this time", .min = 1, .max = DAYS(3650)},
    {"untrusted", FIELD_FLAG, AT(struct grant_request, untrusted),
     "the content is untrusted: it taints the machine (marks it as having read untrusted data)"},
};
const struct schema grant_request_schema =
    SCHEMA("GrantRequest", struct grant_request, grant_request);

static const struct field expose_request[] = {
    {"port", FIELD_NUMBER, AT(struct expose_request, port), "port inside the machine",
     .required = true, .min = 1, .max = 65535},
    {"public", FIELD_FLAG, AT(struct expose_request, is_public),
     "whoever reaches the address may use the port, without a token"},
};
const struct schema expose_request_schema =
    SCHEMA("ExposeRequest", struct expose_request, expose_request);

static const struct field secret_request[] = {
    {"value", FIELD_TEXT, AT(struct secret_request, value),
     "value of the secret: one line of 8 to 8192 bytes", .required = true, .max = 8192},
};
const struct schema secret_request_schema =
    SCHEMA("SecretRequest", struct secret_request, secret_request);

static const struct field login_request[] = {
    {"value", FIELD_TEXT, AT(struct login_request, value),
     "claude: token of `claude setup-token`; codex: text of the file auth.json of a ChatGPT login",
     .required = true, .max = LOGIN_TEXT_MAX},
};
const struct schema login_request_schema =
    SCHEMA("LoginRequest", struct login_request, login_request);

static const struct field logins_view[] = {
    {"logins", SHOW_JSON, 0,
     "logins, each with name, created_ms, changed_ms, used_ms, expires_ms and problem",
     .required = true, .sub = &login_schema},
};
const struct schema logins_schema = SCHEMA("Logins", char *, logins_view);

static const struct field network_view[] = {
    {"machine", SHOW_TEXT, 0, NULL, .required = true},
    {"listening", SHOW_FLAG, 0, "whether the gate accepts connections of this machine",
     .required = true},
    {"default", SHOW_TEXT, 0, "action if no rule matches: deny", .required = true},
    {"guarded", SHOW_FLAG, 0, "whether the network closes once the machine has read untrusted data",
     .required = true},
    {"tainted", SHOW_TEXT, 0, "first untrusted source that the machine read from"},
    {"tainted_ms", SHOW_NUMBER, 0, "when the machine was tainted, in milliseconds since 1970"},
    {"warnings", SHOW_TEXT, 0,
     "warning that the machine has private data, untrusted content and network access at once, or "
     "that a mirror of a preset has a private address"},
    {"rules", SHOW_JSON, 0, "network rules, oldest first", .required = true, .sub = &rule_schema},
};
const struct schema network_schema = SCHEMA("Network", char *, network_view);

static const struct field exposure_view[] = {
    {"machine", SHOW_TEXT, 0, NULL, .required = true},
    {"port", SHOW_NUMBER, 0, NULL, .required = true},
    {"url", SHOW_TEXT, 0, "URL of the port for a browser, with the token", .required = true},
    {"direct_url", SHOW_TEXT, 0, DIRECT_URL_HELP},
    {"headers", SHOW_JSON, 0, DIRECT_HEADERS_HELP, .shape = SHAPE_MAP},
    {"public", SHOW_FLAG, 0, "the port is public, and has no token"},
    {"token", SHOW_TEXT, 0,
     "token of a private port, only in this response; send it in the header Carrel-Token"},
    {"replaced", SHOW_FLAG, 0, "the port was exposed before, and its earlier token is now invalid"},
};
const struct schema exposure_schema = SCHEMA("Exposure", char *, exposure_view);

static const struct field exposures_view[] = {
    {"machine", SHOW_TEXT, 0, NULL, .required = true},
    {"exposures", SHOW_JSON, 0, "exposed ports, each with port, url, direct_url and headers",
     .required = true, .sub = &port_schema},
};
const struct schema exposures_schema = SCHEMA("Exposures", char *, exposures_view);

static const char *const database_kinds[] = {"sqlite", "postgres", NULL};
static const struct field grant_diff_view[] = {
    {"machine", SHOW_TEXT, 0, NULL, .required = true},
    {"grant", SHOW_TEXT, 0, NULL, .required = true},
    {"kind", SHOW_TEXT, 0, "kind of database", .required = true, .choices = database_kinds},
    {"what", SHOW_TEXT, 0, "path or name of the database on the owner's side", .required = true},
    {"at", SHOW_TEXT, 0, "path in the machine", .required = true},
    {"same", SHOW_FLAG, 0, "true if the database is the same as when it was granted"},
    {"diff", SHOW_TEXT, 0,
     "lines that begin with - (when granted) or + (now); sqlite: schema and rows; postgres: "
     "relations, routines, and for each table its row count and a checksum"},
    {"cut", SHOW_FLAG, 0, "the diff is incomplete: it reached its size limit"},
    {"database", SHOW_TEXT, 0,
     "postgres: name of the database on the server; it is dropped when the grant ends"},
    {"error", SHOW_TEXT, 0, "postgres: why the state of the database is unknown"},
};
const struct schema grant_diff_schema = SCHEMA("GrantDiff", char *, grant_diff_view);

static const struct field secrets_view[] = {
    {"secrets", SHOW_JSON, 0, "secrets, each with name, created_ms, changed_ms and used_ms",
     .required = true, .sub = &secret_schema},
};
const struct schema secrets_schema = SCHEMA("Secrets", char *, secrets_view);

static const struct field grants_view[] = {
    {"machine", SHOW_TEXT, 0, NULL, .required = true},
    {"warnings", SHOW_TEXT, 0,
     "warning that the machine has private data, untrusted content and network access at once"},
    {"grants", SHOW_JSON, 0,
     "grants, each with id, kind, what, at, mode, created_ms, expires_ms, detail", .required = true,
     .sub = &grant_schema},
};
const struct schema grants_schema = SCHEMA("Grants", char *, grants_view);

static const char *const decisions[] = {"approve", "deny", "answer", NULL};
static const struct field approval_request[] = {
    {"decision", FIELD_TEXT, AT(struct approval_request, decision), NULL, .required = true,
     .choices = decisions},
    {"text", FIELD_TEXT, AT(struct approval_request, text), "answer: what the machine is told",
     .max = 16000},
    {"always", FIELD_FLAG, AT(struct approval_request, always),
     "also add the network rule that the pending item shows as `always`"},
    {"ttl", FIELD_DURATION, AT(struct approval_request, ttl),
     "also add the network rule `always` of the pending item, for this time", .min = 1,
     .max = DAYS(3650)},
};
const struct schema approval_request_schema =
    SCHEMA("Approval", struct approval_request, approval_request);

static const struct field pendings_view[] = {
    {"pending", SHOW_JSON, 0,
     "pending items, each with id, machine, host, port, protocol, method, path, query, body, "
     "body_sha256, rule, always or no_rule, left_ms ...",
     .required = true, .sub = &pending_schema},
};
const struct schema pendings_schema = SCHEMA("Pending", char *, pendings_view);

static const struct field decided_view[] = {
    {"rule", SHOW_NUMBER, 0, "number of the added network rule"},
    {"added", SHOW_TEXT, 0, "text of the added network rule"},
};
const struct schema decided_schema = SCHEMA("Decided", char *, decided_view);
