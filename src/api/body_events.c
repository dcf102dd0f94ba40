/* Schemas of the events that streams send, and of the rows in lists that handlers write
 * themselves. Each is only documentation: the offsets are 0. */
#include <string.h>

#include "api/body_fields.h"
#include "api/route.h"

#define ONE_OF(name, member, rows) \
    { (name), (member), (rows), sizeof(rows) / sizeof(*(rows)) }

/* ---- rows of lists ---- */

static const struct field rule_view[] = {
    {"id", SHOW_NUMBER, 0, "number of the rule, for its deletion", .required = true},
    {"action", SHOW_TEXT, 0, "allow, deny or ask", .required = true},
    {"target", SHOW_TEXT, 0, NULL, .required = true},
    {"methods", SHOW_TEXT, 0, "HTTP methods; absent: all"},
    {"exact", SHOW_FLAG, 0, "the path must be the same, not only begin so"},
    {"query", SHOW_TEXT, 0, NULL},
    {"local", SHOW_FLAG, 0, NULL},
    {"bytes", SHOW_NUMBER, 0, "limit of bytes sent plus received"},
    {"rate", SHOW_NUMBER, 0, "limit of bytes per second"},
    {"hold_ms", SHOW_NUMBER, 0, "ask: how long a request waits for approval"},
    {"expires", SHOW_NUMBER, 0, "when the rule is deleted, in milliseconds since 1970"},
    {"preset", SHOW_TEXT, 0, NULL},
    {"from", SHOW_TEXT, 0,
     "who gave the rule: client (of E2B) or conf (carrel.conf); absent: the owner"},
    {"trusted", SHOW_FLAG, 0, NULL},
    {"tainted", SHOW_FLAG, 0, NULL},
};
const struct schema rule_schema = SCHEMA("Rule", char *, rule_view);

static const struct field secret_view[] = {
    {"name", SHOW_TEXT, 0, NULL, .required = true},
    {"created_ms", SHOW_NUMBER, 0, NULL, .required = true},
    {"changed_ms", SHOW_NUMBER, 0, NULL, .required = true},
    {"used_ms", SHOW_NUMBER, 0, NULL},
};
const struct schema secret_schema = SCHEMA("Secret", char *, secret_view);

static const struct field login_view[] = {
    {"name", SHOW_TEXT, 0, NULL, .required = true},
    {"created_ms", SHOW_NUMBER, 0, NULL, .required = true},
    {"changed_ms", SHOW_NUMBER, 0, NULL, .required = true},
    {"used_ms", SHOW_NUMBER, 0, NULL},
    {"expires_ms", SHOW_NUMBER, 0, NULL},
    {"problem", SHOW_TEXT, 0, "why the login cannot be used"},
};
const struct schema login_schema = SCHEMA("Login", char *, login_view);

static const struct field grant_view[] = {
    {"id", SHOW_TEXT, 0, NULL, .required = true},
    {"kind", SHOW_TEXT, 0, NULL, .required = true},
    {"what", SHOW_TEXT, 0, "granted object", .required = true},
    {"at", SHOW_TEXT, 0, "path in the machine, or host that receives a secret"},
    {"mode", SHOW_TEXT, 0, NULL},
    {"created_ms", SHOW_NUMBER, 0, NULL, .required = true},
    {"expires_ms", SHOW_NUMBER, 0, NULL},
    {"detail", SHOW_JSON, 0, NULL, .shape = SHAPE_OBJECT},
};
const struct schema grant_schema = SCHEMA("Grant", char *, grant_view);

static const struct field port_view[] = {
    {"port", SHOW_NUMBER, 0, NULL, .required = true},
    {"url", SHOW_TEXT, 0, "URL of the port, without the token", .required = true},
    {"direct_url", SHOW_TEXT, 0, DIRECT_URL_HELP},
    {"headers", SHOW_JSON, 0, DIRECT_HEADERS_HELP, .shape = SHAPE_MAP},
    {"public", SHOW_FLAG, 0, "the port is public, and has no token"},
};
const struct schema port_schema = SCHEMA("Port", char *, port_view);

static const struct field pending_view[] = {
    {"id", SHOW_TEXT, 0, NULL, .required = true},
    {"machine", SHOW_TEXT, 0, NULL, .required = true},
    {"protocol", SHOW_TEXT, 0, "of a request; or `question`, which a program of the machine asks",
     .required = true},
    {"question", SHOW_TEXT, 0, NULL},
    {"moves", SHOW_FLAG, 0, "the question asks that the box becomes a vm; `approve` does that"},
    {"host", SHOW_TEXT, 0, NULL},
    {"port", SHOW_NUMBER, 0, NULL},
    {"method", SHOW_TEXT, 0, NULL},
    {"path", SHOW_TEXT, 0, NULL},
    {"query", SHOW_TEXT, 0, NULL},
    {"body", SHOW_NUMBER, 0, "bytes of the body"},
    {"body_sha256", SHOW_TEXT, 0, NULL},
    {"first", SHOW_TEXT, 0, "first bytes of a connection that is not HTTP"},
    {"always", SHOW_TEXT, 0, "rule that an approval with `always` adds"},
    {"no_rule", SHOW_TEXT, 0, "why an approval cannot add a rule"},
    {"rule", SHOW_NUMBER, 0, "number of the rule that requires the approval"},
    {"why", SHOW_TEXT, 0, "text of that rule"},
    {"since_ms", SHOW_NUMBER, 0, NULL, .required = true},
    {"left_ms", SHOW_NUMBER, 0, "time until the item is refused", .required = true},
    {"waiting", SHOW_NUMBER, 0, "connections that wait for the decision"},
    {"approved", SHOW_FLAG, 0, NULL, .required = true},
};
const struct schema pending_schema = SCHEMA("PendingItem", char *, pending_view);

static const struct field volume_place_view[] = {
    {"machine", SHOW_TEXT, 0, "id of the machine, in a list of machines"},
    {"name", SHOW_TEXT, 0, "name of the volume, in a list of volumes"},
    {"at", SHOW_TEXT, 0, "path in the machine", .required = true},
    {"mode", SHOW_TEXT, 0, "ro, cow or rw", .required = true},
};
const struct schema volume_place_schema = SCHEMA("VolumePlace", char *, volume_place_view);

/* ---- events of a command ---- */

static const char *const start_types[] = {"start", NULL};
static const struct field exec_start_view[] = {
    {"type", SHOW_TEXT, 0, NULL, .required = true, .choices = start_types},
    {"machine", SHOW_TEXT, 0, NULL, .required = true},
    {"exec", SHOW_TEXT, 0, "id of the command", .required = true},
    {"copied", SHOW_FLAG, 0, "output also goes to the descriptors of the request"},
    {"warnings", SHOW_TEXT, 0, NULL},
};
const struct schema exec_event_start_schema = SCHEMA("ExecStart", char *, exec_start_view);

static const char *const output_types[] = {"stdout", "stderr", NULL};
static const struct field exec_output_view[] = {
    {"type", SHOW_TEXT, 0, NULL, .required = true, .choices = output_types},
    {"offset", SHOW_NUMBER, 0, "offset of the first byte in its stream", .required = true},
    {"data", SHOW_TEXT, 0, "the output, if it is UTF-8 text"},
    {"data_base64", SHOW_TEXT, 0, "the output as base64, if it is not UTF-8 text"},
};
const struct schema exec_event_output_schema = SCHEMA("ExecOutput", char *, exec_output_view);

static const char *const gap_types[] = {"gap", NULL};
static const struct field exec_gap_view[] = {
    {"type", SHOW_TEXT, 0, NULL, .required = true, .choices = gap_types},
    {"stream", SHOW_TEXT, 0, NULL, .required = true, .choices = output_types},
    {"offset", SHOW_NUMBER, 0, "offset of the first byte that was not kept", .required = true},
    {"bytes", SHOW_NUMBER, 0, NULL, .required = true},
};
const struct schema exec_event_gap_schema = SCHEMA("ExecGap", char *, exec_gap_view);

static const char *const exit_types[] = {"exit", "now", NULL};
static const struct field exec_exit_view[] = {
    {"type", SHOW_TEXT, 0, "now: the stream was not followed to the end of the command",
     .required = true, .choices = exit_types},
    {"exec", SHOW_OBJECT, 0, NULL, .required = true, .sub = &exec_schema},
};
const struct schema exec_event_exit_schema = SCHEMA("ExecExit", char *, exec_exit_view);

static const struct event_kind exec_kinds[] = {
    {"start", &exec_event_start_schema},   {"stdout", &exec_event_output_schema},
    {"stderr", &exec_event_output_schema}, {"gap", &exec_event_gap_schema},
    {"exit", &exec_event_exit_schema},     {"now", &exec_event_exit_schema},
};

/* ---- lines of the log of a build ---- */

static const char *const step_types[] = {"step", NULL};
static const struct field build_line_step_view[] = {
    {"type", SHOW_TEXT, 0, NULL, .required = true, .choices = step_types},
    {"step", SHOW_NUMBER, 0, NULL, .required = true},
    {"steps", SHOW_NUMBER, 0, NULL, .required = true},
    {"how", SHOW_TEXT, 0, NULL, .required = true},
    {"what", SHOW_TEXT, 0, NULL, .required = true},
};
const struct schema build_line_step_schema = SCHEMA("BuildLogStep", char *, build_line_step_view);

static const char *const build_output_types[] = {"output", NULL};
static const struct field build_line_output_view[] = {
    {"type", SHOW_TEXT, 0, NULL, .required = true, .choices = build_output_types},
    {"data", SHOW_TEXT, 0, NULL},
    {"data_base64", SHOW_TEXT, 0, NULL},
};
const struct schema build_line_output_schema =
    SCHEMA("BuildLogOutput", char *, build_line_output_view);

static const char *const end_types[] = {"end", NULL};
static const struct field build_line_end_view[] = {
    {"type", SHOW_TEXT, 0, NULL, .required = true, .choices = end_types},
    {"build", SHOW_OBJECT, 0, NULL, .required = true, .sub = &build_schema},
};
const struct schema build_line_end_schema = SCHEMA("BuildLogEnd", char *, build_line_end_view);

static const struct event_kind build_kinds[] = {
    {"step", &build_line_step_schema},
    {"output", &build_line_output_schema},
    {"end", &build_line_end_schema},
};

const struct event_union event_unions[] = {
    ONE_OF("ExecEvent", "type", exec_kinds),
    ONE_OF("BuildLogLine", "type", build_kinds),
};
const size_t event_union_count = sizeof(event_unions) / sizeof(*event_unions);

/* ---- other streams ---- */

static const char *const file_changes[] = {"created",    "modified", "written",    "removed",
                                           "moved_from", "moved_to", "attributes", "gone",
                                           "overflow",   "other",    NULL};
static const struct field file_event_view[] = {
    {"change", SHOW_TEXT, 0, NULL, .required = true, .choices = file_changes},
    {"name", SHOW_TEXT, 0, "name of the entry in the watched directory"},
    {"directory", SHOW_FLAG, 0, "the entry is a directory", .required = true},
    {"cookie", SHOW_NUMBER, 0, "the same for the two events of one move"},
};
const struct schema file_event_schema = SCHEMA("FileEvent", char *, file_event_view);

static const struct field event_view_fields[] = {
    {"id", SHOW_NUMBER, 0, NULL, .required = true},
    {"type", SHOW_TEXT, 0, "such as machine.created", .required = true},
    {"time_ms", SHOW_NUMBER, 0, NULL, .required = true},
    {"machine", SHOW_TEXT, 0, NULL},
    {"owner", SHOW_TEXT, 0, NULL, .required = true},
    {"detail", SHOW_JSON, 0, NULL, .shape = SHAPE_OBJECT},
};
const struct schema event_schema = SCHEMA("Event", char *, event_view_fields);

static const char *const record_kinds[] = {"intent", "result", "note", "segment", "head", NULL};
static const struct field record_view[] = {
    {"seq", SHOW_NUMBER, 0, "number of the record", .required = true},
    {"time", SHOW_NUMBER, 0, "in milliseconds since 1970", .required = true},
    {"kind", SHOW_TEXT, 0, NULL, .required = true, .choices = record_kinds},
    {"owner", SHOW_TEXT, 0, NULL},
    {"token", SHOW_TEXT, 0, NULL},
    {"client", SHOW_TEXT, 0, NULL},
    {"verb", SHOW_TEXT, 0, "what was done, such as machine.create"},
    {"machine", SHOW_TEXT, 0, NULL},
    {"exec", SHOW_TEXT, 0, NULL},
    {"argv", SHOW_JSON, 0, NULL, .shape = SHAPE_TEXTS},
    {"argv_bytes", SHOW_NUMBER, 0, NULL},
    {"argv_hash", SHOW_TEXT, 0, NULL},
    {"exit", SHOW_JSON, 0, NULL},
    {"bytes", SHOW_NUMBER, 0, NULL},
    {"intent", SHOW_NUMBER, 0, "result: number of the record of its intent"},
    {"reason", SHOW_TEXT, 0, NULL},
    {"segment", SHOW_NUMBER, 0, NULL},
    {"journal", SHOW_TEXT, 0, NULL},
    {"prev", SHOW_TEXT, 0, "hash of the record before"},
    {"sig", SHOW_TEXT, 0, NULL},
    {"detail", SHOW_JSON, 0, NULL},
    {"hash", SHOW_TEXT, 0, NULL, .required = true},
};
const struct schema record_schema = SCHEMA("Record", char *, record_view);

static const struct field run_event_view[] = {
    {"event", SHOW_TEXT, 0, "such as start, answer, call, result or end", .required = true},
    {"time", SHOW_NUMBER, 0, "in milliseconds since 1970", .required = true},
    {"note", SHOW_TEXT, 0, NULL},
    {"run", SHOW_TEXT, 0, NULL},
    {"owner", SHOW_TEXT, 0, NULL},
    {"machine", SHOW_TEXT, 0, NULL},
    {"own_machine", SHOW_FLAG, 0, NULL},
    {"model", SHOW_TEXT, 0, NULL},
    {"task", SHOW_TEXT, 0, NULL},
    {"card", SHOW_TEXT, 0, NULL},
    {"window", SHOW_NUMBER, 0, NULL},
    {"prompt_bytes", SHOW_NUMBER, 0, NULL},
    {"turns", SHOW_NUMBER, 0, NULL},
    {"tokens", SHOW_NUMBER, 0, NULL},
    {"money", SHOW_NUMBER, 0, NULL},
    {"timeout_ms", SHOW_NUMBER, 0, NULL},
    {"script", SHOW_TEXT, 0, NULL},
    {"mode", SHOW_TEXT, 0, NULL},
    {"menu", SHOW_TEXT, 0, NULL},
    {"parent", SHOW_TEXT, 0, NULL},
    {"tries", SHOW_NUMBER, 0, NULL},
    {"check", SHOW_TEXT, 0, NULL},
    {"check_files", SHOW_TEXT, 0, NULL},
    {"guard", SHOW_FLAG, 0, NULL},
    {"asks", SHOW_FLAG, 0, NULL},
    {"good", SHOW_FLAG, 0, NULL},
    {"changes", SHOW_NUMBER, 0, NULL},
    {"calls", SHOW_NUMBER, 0, NULL},
    {"changeset", SHOW_TEXT, 0, NULL},
    {"in", SHOW_NUMBER, 0, NULL},
    {"cache_read", SHOW_NUMBER, 0, NULL},
    {"cache_write", SHOW_NUMBER, 0, NULL},
    {"cache_write_long", SHOW_NUMBER, 0, NULL},
    {"out", SHOW_NUMBER, 0, NULL},
    {"reasoning", SHOW_NUMBER, 0, NULL},
    {"has_usage", SHOW_FLAG, 0, NULL},
    {"cost", SHOW_NUMBER, 0, NULL},
    {"request_bytes", SHOW_NUMBER, 0, NULL},
    {"index", SHOW_NUMBER, 0, NULL},
    {"tool", SHOW_TEXT, 0, NULL},
    {"arguments", SHOW_TEXT, 0, "arguments of the tool, as JSON text"},
    {"hash", SHOW_TEXT, 0, NULL},
    {"failed", SHOW_FLAG, 0, NULL},
    {"bytes", SHOW_NUMBER, 0, NULL},
    {"took_ms", SHOW_NUMBER, 0, NULL},
    {"fallback", SHOW_TEXT, 0, NULL},
    {"text", SHOW_TEXT, 0, NULL},
    {"media", SHOW_TEXT, 0, NULL},
    {"image", SHOW_TEXT, 0, NULL},
    {"name", SHOW_TEXT, 0, NULL},
    {"step", SHOW_TEXT, 0, NULL},
    {"before", SHOW_NUMBER, 0, NULL},
    {"attempt", SHOW_NUMBER, 0, NULL},
    {"wait_ms", SHOW_NUMBER, 0, NULL},
    {"status", SHOW_TEXT, 0, "end: how the run ended"},
    {"purpose", SHOW_TEXT, 0, "answer: what the model was asked for"},
    {"stop", SHOW_NUMBER, 0, NULL},
    {"parts", SHOW_JSON, 0, "answer: parts, each with kind and text", .shape = SHAPE_ROWS},
    {"report", SHOW_JSON, 0, "end: work done, evidence, work left", .shape = SHAPE_OBJECT},
};
const struct schema run_event_schema = SCHEMA("RunEvent", char *, run_event_view);

/* ---- which route streams which ---- */

const char *route_events(const struct route *r, bool *ret_both) {
    static const struct {
        const char *id, *events;
        bool both; /* NDJSON and server-sent events */
    } rows[] = {{"exec", "ExecEvent", true},        {"run", "ExecEvent", true},
                {"exec_events", "ExecEvent", true}, {"build_log", "BuildLogLine", true},
                {"file_watch", "FileEvent", false}, {"events", "Event", false},
                {"run_events", "RunEvent", false},  {"run_transcript", "RunEvent", false},
                {"audit", "Record", false}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (strcmp(rows[i].id, r->id) == 0) {
            *ret_both = rows[i].both;
            return rows[i].events;
        }
    *ret_both = false;
    return NULL;
}
