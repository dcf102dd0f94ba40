#include "api/bodies.h"

#include "operator/operator.h"
#include "service/approvals.h"
#include "service/changesets.h"
#include "service/check.h"
#include "service/expose.h"
#include "service/images.h"
#include "service/secrets.h"
#include "service/steps.h"
#include "service/tokens.h"
#include "service/view.h"

enum {
    KIND_MAX = 16,
    NAME_MAX_BYTES = STORE_NAME_SIZE - 1,
    PATH_MAX_BYTES = 4095,
    TEXT_MAX_BYTES = 1 << 20,
    KEY_MAX_BYTES = STORE_KEY_SIZE - 1,
};

#define DAYS(n) ((uint64_t)(n)*24 * 3600 * 1000)
#define AT(type, member) offsetof(type, member)

static const char *const kinds[] = {"box", NULL};
static const char *const modes[] = {"ro", "cow", "rw", NULL};
static const char *const policies[] = {"every", "risky", "manual", NULL};
static const char *const idle_actions[] = {"pause", "stop", "destroy", NULL};

/* ---- requests ---- */

static const struct field limits_request[] = {
    {"mem", FIELD_SIZE, AT(struct limits_request, mem), "memory", .min = 1 << 20,
     .max = 1ull << 44},
    {"cpus", FIELD_CPUS, AT(struct limits_request, cpus), "processors, 0.01 and up", .min = 10,
     .max = 1024000},
    {"pids", FIELD_NUMBER, AT(struct limits_request, pids), "processes and threads", .min = 4,
     .max = 1 << 22},
    {"disk", FIELD_SIZE, AT(struct limits_request, disk), "what it may write", .min = 1 << 20,
     .max = 1ull << 46},
};
static const struct schema limits_request_schema =
    SCHEMA("LimitsRequest", struct limits_request, limits_request);

static const struct field dir_request[] = {
    {"path", FIELD_TEXT, AT(struct dir_request, path),
     "directory of the host; its descriptor comes with the request, or it lies under a root of "
     "carrel.conf",
     .required = true, .max = PATH_MAX_BYTES},
    {"at", FIELD_TEXT, AT(struct dir_request, at), "where it appears (default: the same path)",
     .max = PATH_MAX_BYTES},
    {"mode", FIELD_TEXT, AT(struct dir_request, mode), "default: cow", .choices = modes},
    {"untrusted", FIELD_FLAG, AT(struct dir_request, untrusted),
     "strangers may have written it: it taints the machine"},
};
static const struct schema dir_request_schema =
    SCHEMA("DirRequest", struct dir_request, dir_request);

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
static const struct schema secret_grant_request_schema =
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

static const struct field models_request[] = {
    {"allow", FIELD_FLAG, AT(struct models_request, allow),
     "let it ask models at http://models.carrel; a limit means this too"},
    {"tokens", FIELD_NUMBER, AT(struct models_request, tokens), "it may spend; 0: no limit",
     .max = 1ull << 50},
    {"money", FIELD_MONEY, AT(struct models_request, money),
     "it may spend, in the unit of carrel.conf's prices; 0: no limit", .max = 1ull << 50},
};
static const struct schema models_request_schema =
    SCHEMA("ModelsRequest", struct models_request, models_request);

#define COMMON_FIELDS(type, base)                                                           \
    {"name", FIELD_TEXT, AT(type, base name), "unique among the owner's living machines",   \
     .max = NAME_MAX_BYTES},                                                                \
        {"limits", FIELD_OBJECT, AT(type, base limits), "hard limits",                      \
         .sub = &limits_request_schema},                                                    \
        {"ttl", FIELD_DURATION, AT(type, base ttl), "total lifetime from now; 0: none",     \
         .max = DAYS(3650)},                                                                \
        {"idle", FIELD_DURATION, AT(type, base idle),                                       \
         "end of patience with a machine nobody uses; 0: none", .max = DAYS(3650)},         \
        {"idle_action", FIELD_TEXT, AT(type, base idle_action), "what happens then",        \
         .choices = idle_actions},                                                          \
        {"steps", FIELD_TEXT, AT(type, base steps),                                         \
         "when a step is taken: after every change, before a risky command, or on request", \
         .choices = policies},                                                              \
    {                                                                                       \
        "metadata", FIELD_MAP, AT(type, base metadata), "names and values of the caller",   \
            .max = 64                                                                       \
    }

#define MACHINE_FIELDS(type, base)                                                                \
    {"kind", FIELD_TEXT, AT(type, base kind), "default: box", .choices = kinds},                  \
        {"image", FIELD_TEXT, AT(type, base image), "default: host", .max = NAME_MAX_BYTES},      \
        {"hostname", FIELD_TEXT, AT(type, base hostname), NULL, .max = NAME_MAX_BYTES},           \
        COMMON_FIELDS(type, base),                                                                \
        {"env", FIELD_MAP, AT(type, base env), "of every command in it", .max = 256},             \
        {"dirs",                                                                                  \
         FIELD_OBJECTS,                                                                           \
         AT(type, base dirs),                                                                     \
         "directories handed over",                                                               \
         .max = 16,                                                                               \
         .sub = &dir_request_schema},                                                             \
        {"net",                                                                                   \
         FIELD_OBJECTS,                                                                           \
         AT(type, base net),                                                                      \
         "what it may reach; nothing by default",                                                 \
         .max = 64,                                                                               \
         .sub = &net_request_schema},                                                             \
        {"secrets",                                                                               \
         FIELD_OBJECTS,                                                                           \
         AT(type, base secrets),                                                                  \
         "placeholders of secrets, each good for one host",                                       \
         .max = 32,                                                                               \
         .sub = &secret_grant_request_schema},                                                    \
        {"grants",                                                                                \
         FIELD_OBJECTS,                                                                           \
         AT(type, base grants),                                                                   \
         "what else it is handed; descriptors of files follow those of directories",              \
         .max = 64,                                                                               \
         .sub = &grant_request_schema},                                                           \
        {"expires",                                                                               \
         FIELD_DURATION,                                                                          \
         AT(type, base expires),                                                                  \
         "then all it was handed is taken back",                                                  \
         .min = 1,                                                                                \
         .max = DAYS(3650)},                                                                      \
        {"models", FIELD_OBJECT, AT(type, base models), "models for those inside",                \
         .sub = &models_request_schema},                                                          \
        {"unreviewed", FIELD_FLAG, AT(type, base unreviewed),                                     \
         "needed for mode rw: what it writes there is not reviewed"},                             \
        {"guard", FIELD_FLAG, AT(type, base guard),                                               \
         "once it has read from a source that is not trusted, only what was granted for that is " \
         "reached"},                                                                              \
    {                                                                                             \
        "key", FIELD_TEXT, AT(type, base key), "idempotency key", .max = KEY_MAX_BYTES            \
    }

static const struct field machine_request[] = {MACHINE_FIELDS(struct machine_request, )};
const struct schema machine_request_schema =
    SCHEMA("MachineRequest", struct machine_request, machine_request);

static const struct field update_request[] = {
    COMMON_FIELDS(struct update_request, ),
    {"models", FIELD_OBJECT, AT(struct update_request, models),
     "new limits of what it may spend on models; tokens need the scope admin",
     .sub = &models_request_schema},
};
const struct schema update_request_schema =
    SCHEMA("UpdateRequest", struct update_request, update_request);

static const struct field pty_request[] = {
    {"rows", FIELD_NUMBER, AT(struct pty_request, rows), "default 24", .min = 1, .max = 1000},
    {"cols", FIELD_NUMBER, AT(struct pty_request, cols), "default 80", .min = 1, .max = 1000},
};
const struct schema resize_request_schema = SCHEMA("Size", struct pty_request, pty_request);

#define EXEC_FIELDS(type, base)                                                              \
    {"argv", FIELD_TEXTS, AT(type, base argv), "the command, word by word", .max = 4096},    \
        {"command", FIELD_TEXT, AT(type, base command), "or as a line for /bin/sh",          \
         .max = TEXT_MAX_BYTES},                                                             \
        {"env", FIELD_MAP, AT(type, base env), "on top of the machine's", .max = 256},       \
        {"cwd", FIELD_TEXT, AT(type, base cwd), "default: the user's home",                  \
         .max = PATH_MAX_BYTES},                                                             \
        {"user", FIELD_TEXT, AT(type, base user), "user (default), root, or a number",       \
         .max = NAME_MAX_BYTES},                                                             \
        {"stdin", FIELD_TEXT, AT(type, base stdin_text), "its standard input",               \
         .max = TEXT_MAX_BYTES},                                                             \
        {"stdin_base64", FIELD_TEXT, AT(type, base stdin_base64), "the same as base64",      \
         .max = TEXT_MAX_BYTES * 2},                                                         \
        {"stdin_open", FIELD_FLAG, AT(type, base stdin_open),                                \
         "more input will be written; without it and stdin there is none"},                  \
        {"timeout", FIELD_DURATION, AT(type, base timeout), "then its whole tree is killed", \
         .max = DAYS(3650)},                                                                 \
        {"terminal", FIELD_FLAG, AT(type, base terminal), "give it one"},                    \
        {"size", FIELD_OBJECT, AT(type, base pty), "of the terminal",                        \
         .sub = &resize_request_schema},                                                     \
        {"stdio", FIELD_TEXTS, AT(type, base stdio),                                         \
         "over the unix socket: null or fd for each stream; pipes come with the request",    \
         .max = 3},                                                                          \
        {"kill_left", FIELD_FLAG, AT(type, base kill_left),                                  \
         "when it ends, kill what it left behind"},                                          \
        {"background", FIELD_FLAG, AT(type, base background),                                \
         "answer when it has started, not when it has ended"},                               \
        {"output_max", FIELD_SIZE, AT(type, base output_max),                                \
         "bytes of each stream in the answer (default 1 MiB); the log has them all",         \
         .max = 16 << 20},                                                                   \
    {                                                                                        \
        "key", FIELD_TEXT, AT(type, base key), "idempotency key: it runs at most once",      \
            .max = KEY_MAX_BYTES                                                             \
    }

static const struct field exec_request[] = {EXEC_FIELDS(struct exec_request, )};
const struct schema exec_request_schema = SCHEMA("ExecRequest", struct exec_request, exec_request);

static const struct field run_request[] = {
    {"machine", FIELD_OBJECT, AT(struct run_request, machine), "made for this and thrown away",
     .sub = &machine_request_schema},
    {"exec", FIELD_OBJECT, AT(struct run_request, exec), "what runs in it", .required = true,
     .sub = &exec_request_schema},
};
const struct schema run_request_schema = SCHEMA("RunRequest", struct run_request, run_request);

static const struct field snap_request[] = {
    {"name", FIELD_TEXT, AT(struct snap_request, name), "one that has a name is never dropped",
     .max = NAME_MAX_BYTES},
};
static const struct field image_request[] = {
    {"name", FIELD_TEXT, AT(struct image_request, name), "of the image", .required = true,
     .max = NAME_MAX_BYTES},
    {"step", FIELD_TEXT, AT(struct image_request, step), "of the machine (default: as it is now)",
     .max = NAME_MAX_BYTES},
    {"env", FIELD_MAP, AT(struct image_request, env), "of commands, over the image's own",
     .max = 256},
    {"user", FIELD_TEXT, AT(struct image_request, user), "whom commands run as",
     .max = NAME_MAX_BYTES},
    {"workdir", FIELD_TEXT, AT(struct image_request, workdir), "where they start",
     .max = PATH_MAX_BYTES},
    {"command", FIELD_TEXTS, AT(struct image_request, command), "kept for others to run",
     .max = 256},
};
static const struct field tag_request[] = {
    {"name", FIELD_TEXT, AT(struct tag_request, name), "in place of what had that name",
     .required = true, .max = NAME_MAX_BYTES},
};
const struct schema tag_request_schema = SCHEMA("ImageName", struct tag_request, tag_request);

const struct schema image_request_schema =
    SCHEMA("ImageRequest", struct image_request, image_request);

const struct schema snap_request_schema = SCHEMA("SnapRequest", struct snap_request, snap_request);

static const struct field rewind_request[] = {
    {"step", FIELD_TEXT, AT(struct rewind_request, step), "its number, id or name; last",
     .required = true, .max = NAME_MAX_BYTES},
    {"drifted", FIELD_FLAG, AT(struct rewind_request, drifted),
     "also if the host's packages changed since"},
};
const struct schema rewind_request_schema =
    SCHEMA("RewindRequest", struct rewind_request, rewind_request);

static const struct field hibernate_request[] = {
    {"files_only", FIELD_FLAG, AT(struct hibernate_request, files_only),
     "a step is taken and every process ended: memory is lost"},
};
const struct schema hibernate_request_schema =
    SCHEMA("HibernateRequest", struct hibernate_request, hibernate_request);

static const struct field fork_request[] = {
    {"count", FIELD_NUMBER, AT(struct fork_request, count), "machines (default 1)", .min = 1,
     .max = FORK_MAX},
    {"step", FIELD_TEXT, AT(struct fork_request, step), "which (default: as it is now)",
     .max = NAME_MAX_BYTES},
    {"drifted", FIELD_FLAG, AT(struct fork_request, drifted),
     "also if the host's packages changed since"},
};
const struct schema fork_request_schema = SCHEMA("ForkRequest", struct fork_request, fork_request);

static const struct field signal_request[] = {
    {"signal", FIELD_TEXT, AT(struct signal_request, signal), "TERM, SIGTERM or 15",
     .required = true, .max = KIND_MAX},
    {"main_only", FIELD_FLAG, AT(struct signal_request, main_only),
     "to its first process alone, not to its group"},
};
const struct schema signal_request_schema =
    SCHEMA("SignalRequest", struct signal_request, signal_request);

#define FILE_PATH(type, member, text) \
    { #member, FIELD_TEXT, AT(type, member), text, .required = true, .max = PATH_MAX_BYTES }
#define FILE_USER(type)                                                                  \
    {                                                                                    \
        "user", FIELD_TEXT, AT(type, user), "acts as user (default), root, or a number", \
            .max = NAME_MAX_BYTES                                                        \
    }

static const struct field mkdir_request[] = {
    FILE_PATH(struct mkdir_request, path, NULL),
    {"mode", FIELD_NUMBER, AT(struct mkdir_request, mode), "decimal; default 493 (0755)",
     .max = 07777},
    {"exact", FIELD_FLAG, AT(struct mkdir_request, exact),
     "parents must exist and the directory must not"},
    FILE_USER(struct mkdir_request),
};
const struct schema mkdir_request_schema =
    SCHEMA("MkdirRequest", struct mkdir_request, mkdir_request);

static const struct field move_request[] = {
    FILE_PATH(struct move_request, from, NULL),
    FILE_PATH(struct move_request, to, NULL),
    {"no_replace", FIELD_FLAG, AT(struct move_request, no_replace), "fail if it exists"},
    FILE_USER(struct move_request),
};
const struct schema move_request_schema = SCHEMA("MoveRequest", struct move_request, move_request);

static const struct field chmod_request[] = {
    FILE_PATH(struct chmod_request, path, NULL),
    {"mode", FIELD_TEXT, AT(struct chmod_request, mode), "octal, such as 644", .required = true,
     .max = 5},
    FILE_USER(struct chmod_request),
};
const struct schema chmod_request_schema =
    SCHEMA("ChmodRequest", struct chmod_request, chmod_request);

static const struct field chown_request[] = {
    FILE_PATH(struct chown_request, path, NULL),
    {"owner", FIELD_NUMBER, AT(struct chown_request, owner), "uid", .max = 65534},
    {"group", FIELD_NUMBER, AT(struct chown_request, group), "gid", .max = 65534},
    FILE_USER(struct chown_request),
};
const struct schema chown_request_schema =
    SCHEMA("ChownRequest", struct chown_request, chown_request);

static const struct field symlink_request[] = {
    FILE_PATH(struct symlink_request, target, "what the link says"),
    FILE_PATH(struct symlink_request, path, "where it is made"),
    FILE_USER(struct symlink_request),
};
const struct schema symlink_request_schema =
    SCHEMA("SymlinkRequest", struct symlink_request, symlink_request);

/* ---- responses ---- */

static const struct field limits_view[] = {
    {"mem", SHOW_NUMBER, AT(struct limits_view, mem), "bytes", .required = true},
    {"cpus", SHOW_CPUS, AT(struct limits_view, cpus), "0: as many as there are", .required = true},
    {"pids", SHOW_NUMBER, AT(struct limits_view, pids), NULL, .required = true},
    {"disk", SHOW_NUMBER, AT(struct limits_view, disk), "bytes", .required = true},
};
static const struct schema limits_schema = SCHEMA("Limits", struct limits_view, limits_view);

static const struct field machine_view[] = {
    {"id", SHOW_TEXT, AT(struct machine_view, id), NULL, .required = true},
    {"name", SHOW_TEXT, AT(struct machine_view, name), NULL},
    {"owner", SHOW_TEXT, AT(struct machine_view, owner), NULL, .required = true},
    {"kind", SHOW_TEXT, AT(struct machine_view, kind), NULL, .required = true},
    {"image", SHOW_TEXT, AT(struct machine_view, image), "by name", .required = true},
    {"image_id", SHOW_TEXT, AT(struct machine_view, image_id), "by content, unless it is host"},
    {"state", SHOW_TEXT, AT(struct machine_view, state),
     "creating, running, paused, stopped, ending or ended", .required = true},
    {"reason", SHOW_TEXT, AT(struct machine_view, reason),
     "why it ended, or why it is stopped if the host was restarted"},
    {"created", SHOW_TIME, AT(struct machine_view, created_ms), NULL, .required = true},
    {"ended", SHOW_TIME, AT(struct machine_view, ended_ms), NULL},
    {"expires", SHOW_TIME, AT(struct machine_view, expires_ms), "end of its lifetime"},
    {"limits", SHOW_OBJECT, AT(struct machine_view, limits), NULL, .required = true,
     .sub = &limits_schema},
    {"idle_ms", SHOW_NUMBER, AT(struct machine_view, idle_ms), "0: none", .required = true},
    {"idle_action", SHOW_TEXT, AT(struct machine_view, idle_action), NULL},
    {"steps", SHOW_TEXT, AT(struct machine_view, steps), "when a step is taken", .required = true},
    {"metadata", SHOW_JSON, AT(struct machine_view, metadata), NULL},
    {"commands", SHOW_NUMBER, AT(struct machine_view, commands), "running", .required = true},
    {"disk_bytes", SHOW_NUMBER, AT(struct machine_view, disk_bytes),
     "on disk that are its own, files and history, when it was last looked at; what it shares with "
     "its image and its ancestors is not among them",
     .required = true},
    {"step_count", SHOW_NUMBER, AT(struct machine_view, step_count), NULL, .required = true},
    {"drifted", SHOW_FLAG, AT(struct machine_view, drifted),
     "the host's packages changed since it was made", .required = true},
    {"warnings", SHOW_TEXT, AT(struct machine_view, warnings), NULL},
    {"unreached", SHOW_TEXT, AT(struct machine_view, unreached),
     "why it cannot be spoken to at the moment; it is tried again"},
};
const struct schema machine_schema = SCHEMA("Machine", struct machine_view, machine_view);

static const struct field stats_view[] = {
    {"cpu_us", SHOW_NUMBER, AT(struct stats_view, cpu_us), NULL, .required = true},
    {"mem_bytes", SHOW_NUMBER, AT(struct stats_view, mem_bytes), NULL, .required = true},
    {"mem_peak_bytes", SHOW_NUMBER, AT(struct stats_view, mem_peak_bytes), NULL, .required = true},
    {"mem_limit_bytes", SHOW_NUMBER, AT(struct stats_view, mem_limit_bytes), NULL,
     .required = true},
    {"pids", SHOW_NUMBER, AT(struct stats_view, pids), NULL, .required = true},
    {"io_bytes", SHOW_NUMBER, AT(struct stats_view, io_bytes), NULL, .required = true},
    {"disk_bytes", SHOW_NUMBER, AT(struct stats_view, disk_bytes), NULL, .required = true},
    {"oom_kills", SHOW_NUMBER, AT(struct stats_view, oom_kills), NULL, .required = true},
    {"pids_refused", SHOW_NUMBER, AT(struct stats_view, pids_refused), NULL, .required = true},
    {"lookups_refused", SHOW_NUMBER, AT(struct stats_view, lookups_refused),
     "name lookups that had nowhere to go", .required = true},
    {"frozen", SHOW_FLAG, AT(struct stats_view, frozen), NULL, .required = true},
    {"models", SHOW_JSON, AT(struct stats_view, models),
     "calls, tokens and money spent on models, and what is left of each limit"},
};
const struct schema stats_schema = SCHEMA("Stats", struct stats_view, stats_view);

static const struct field usage_view[] = {
    {"user_us", SHOW_NUMBER, AT(struct usage_view, user_us), NULL, .required = true},
    {"system_us", SHOW_NUMBER, AT(struct usage_view, system_us), NULL, .required = true},
    {"max_rss_kb", SHOW_NUMBER, AT(struct usage_view, max_rss_kb), NULL, .required = true},
    {"wall_us", SHOW_NUMBER, AT(struct usage_view, wall_us), NULL, .required = true},
};
static const struct schema usage_schema = SCHEMA("Usage", struct usage_view, usage_view);

static const struct field exec_view[] = {
    {"id", SHOW_TEXT, AT(struct exec_view, id), NULL, .required = true},
    {"machine", SHOW_TEXT, AT(struct exec_view, machine), NULL, .required = true},
    {"argv", SHOW_JSON, AT(struct exec_view, argv), NULL, .required = true},
    {"cwd", SHOW_TEXT, AT(struct exec_view, cwd), NULL},
    {"user", SHOW_TEXT, AT(struct exec_view, user), NULL},
    {"state", SHOW_TEXT, AT(struct exec_view, state),
     "starting, running, exited, failed (it never began) or unknown", .required = true},
    {"reason", SHOW_TEXT, AT(struct exec_view, reason),
     "exit, signal, timeout, memory, killed, or why it never began"},
    {"status", SHOW_SIGNED, AT(struct exec_view, status),
     "as a shell shows it; -1 while it is not known", .required = true},
    {"signal", SHOW_NUMBER, AT(struct exec_view, signal), "that ended it, or 0", .required = true},
    {"started", SHOW_TIME, AT(struct exec_view, started_ms), NULL},
    {"ended", SHOW_TIME, AT(struct exec_view, ended_ms), NULL},
    {"stdout_bytes", SHOW_NUMBER, AT(struct exec_view, stdout_bytes), NULL, .required = true},
    {"stderr_bytes", SHOW_NUMBER, AT(struct exec_view, stderr_bytes), NULL, .required = true},
    {"usage", SHOW_OBJECT, AT(struct exec_view, usage), NULL, .required = true,
     .sub = &usage_schema},
    {"error", SHOW_TEXT, AT(struct exec_view, error), "why it never began"},
    {"terminal", SHOW_FLAG, AT(struct exec_view, terminal), NULL, .required = true},
};
const struct schema exec_schema = SCHEMA("Exec", struct exec_view, exec_view);

static const struct field step_view_fields[] = {
    {"id", SHOW_TEXT, AT(struct step_view, id), NULL, .required = true},
    {"machine", SHOW_TEXT, AT(struct step_view, machine), NULL, .required = true},
    {"number", SHOW_NUMBER, AT(struct step_view, number), "1, 2, ... in its machine",
     .required = true},
    {"kind", SHOW_TEXT, AT(struct step_view, kind),
     "exec, file, snap, kept (what was there before a rewind), rewind or fork", .required = true},
    {"name", SHOW_TEXT, AT(struct step_view, name), NULL},
    {"created", SHOW_TIME, AT(struct step_view, created_ms), NULL, .required = true},
    {"exec", SHOW_TEXT, AT(struct step_view, exec), "the command that ended"},
    {"what", SHOW_TEXT, AT(struct step_view, what), "its argv as JSON, a path, or a remark"},
    {"status", SHOW_SIGNED, AT(struct step_view, status), "of the command; -1: none",
     .required = true},
    {"restorable", SHOW_FLAG, AT(struct step_view, restorable), "it can be returned to",
     .required = true},
    {"reason", SHOW_TEXT, AT(struct step_view, reason), "why it cannot"},
    {"how", SHOW_TEXT, AT(struct step_view, how),
     "it was taken: switch (of root), reflink or copy (while commands ran), same (nothing was "
     "written since)"},
    {"layers", SHOW_NUMBER, AT(struct step_view, layers), "it is made of, above the image",
     .required = true},
    {"counted", SHOW_FLAG, AT(struct step_view, counted), "the next two are known",
     .required = true},
    {"files", SHOW_NUMBER, AT(struct step_view, files), "changed since the step before",
     .required = true},
    {"bytes", SHOW_NUMBER, AT(struct step_view, bytes), "they take on disk", .required = true},
    {"durable", SHOW_FLAG, AT(struct step_view, durable),
     "the machine is this after a restart of the host", .required = true},
};
const struct schema step_schema = SCHEMA("Step", struct step_view, step_view_fields);

static const struct field image_view_fields[] = {
    {"id", SHOW_TEXT, AT(struct image_view, id), "by content", .required = true},
    {"name", SHOW_TEXT, AT(struct image_view, name), NULL, .required = true},
    {"owner", SHOW_TEXT, AT(struct image_view, owner), NULL, .required = true},
    {"origin", SHOW_TEXT, AT(struct image_view, origin), "import, or the machine it was made of",
     .required = true},
    {"created", SHOW_TIME, AT(struct image_view, created_ms), NULL, .required = true},
    {"bytes", SHOW_NUMBER, AT(struct image_view, bytes), "in its files", .required = true},
    {"entries", SHOW_NUMBER, AT(struct image_view, entries), "files, directories and links",
     .required = true},
    {"machines", SHOW_NUMBER, AT(struct image_view, machines), "that lie on it now",
     .required = true},
    {"stored", SHOW_TEXT, AT(struct image_view, stored),
     "`erofs`, a file that is mounted, or `directory`", .required = true},
    {"config", SHOW_JSON, AT(struct image_view, config), "arch, env, user, workdir, command ...",
     .required = true},
};
const struct schema image_schema = SCHEMA("Image", struct image_view, image_view_fields);

/* Lists and results are written by their handlers; these say what they hold. */

static const struct field images_view[] = {
    {"images", SHOW_JSON, 0, NULL, .required = true, .sub = &image_schema},
};
const struct schema images_schema = {.name = "Images", .fields = images_view, .count = 1};

static const struct field pruned_view[] = {
    {"removed", SHOW_NUMBER, 0, "names", .required = true},
    {"bytes", SHOW_NUMBER, 0, "in the files behind them", .required = true},
};
const struct schema pruned_schema = {.name = "Pruned", .fields = pruned_view, .count = 2};

static const struct field steps_view[] = {
    {"steps", SHOW_JSON, 0, NULL, .required = true, .sub = &step_schema},
    {"next", SHOW_TEXT, 0, "cursor of the next page; absent at the end"},
};
const struct schema steps_schema = SCHEMA("Steps", char *, steps_view);

static const struct field change_side_view[] = {
    {"type", SHOW_TEXT, 0, "file, directory, symlink, fifo, socket or device", .required = true},
    {"mode", SHOW_TEXT, 0, "octal", .required = true},
    {"owner", SHOW_NUMBER, 0, "as the machine has it", .required = true},
    {"group", SHOW_NUMBER, 0, NULL, .required = true},
    {"size", SHOW_NUMBER, 0, "bytes", .required = true},
};
static const struct schema change_side_schema = SCHEMA("ChangeSide", char *, change_side_view);

static const struct field change_view[] = {
    {"path", SHOW_TEXT, 0, "from the root on, without a leading '/'", .required = true},
    {"path_base64", SHOW_TEXT, 0, "its bytes, when they are no UTF-8"},
    {"change", SHOW_TEXT, 0, "added, modified or deleted", .required = true},
    {"before", SHOW_OBJECT, 0, NULL, .sub = &change_side_schema},
    {"after", SHOW_OBJECT, 0, NULL, .sub = &change_side_schema},
    {"target_before", SHOW_TEXT, 0, "of a symbolic link"},
    {"target_before_base64", SHOW_TEXT, 0, NULL},
    {"target_after", SHOW_TEXT, 0, NULL},
    {"target_after_base64", SHOW_TEXT, 0, NULL},
    {"content", SHOW_TEXT, 0,
     "of a file whose content differs: text, binary, large (more than 1 MiB: not compared by "
     "lines), cut (text, but there was no room) or unreadable"},
    {"lines_added", SHOW_NUMBER, 0, NULL},
    {"lines_removed", SHOW_NUMBER, 0, NULL},
    {"diff", SHOW_TEXT, 0, "unified hunks of a text, without the lines that name files"},
};
static const struct schema change_schema = SCHEMA("Change", char *, change_view);

static const struct field diff_end_view[] = {
    {"name", SHOW_TEXT, 0, "start, now, or a step's id", .required = true},
    {"number", SHOW_NUMBER, 0, "of the step"},
};
static const struct schema diff_end_schema = SCHEMA("DiffEnd", char *, diff_end_view);

static const struct field diff_view_fields[] = {
    {"machine", SHOW_TEXT, 0, NULL, .required = true},
    {"from", SHOW_OBJECT, 0, NULL, .required = true, .sub = &diff_end_schema},
    {"to", SHOW_OBJECT, 0, NULL, .required = true, .sub = &diff_end_schema},
    {"added", SHOW_NUMBER, 0, "all that were found, listed or not", .required = true},
    {"modified", SHOW_NUMBER, 0, NULL, .required = true},
    {"deleted", SHOW_NUMBER, 0, NULL, .required = true},
    {"cut", SHOW_TEXT, 0,
     "why something is missing: entries (more than 5,000 differ), looked (more than two million "
     "names), time (25 s) or depth; absent when nothing is"},
    {"changes", SHOW_JSON, 0, NULL, .required = true, .sub = &change_schema},
};
const struct schema diff_schema = SCHEMA("Diff", char *, diff_view_fields);

static const struct field store_problem_view[] = {
    {"machine", SHOW_TEXT, AT(struct store_problem, machine), "that needs it", .required = true},
    {"layer", SHOW_TEXT, AT(struct store_problem, layer), NULL},
    {"what", SHOW_TEXT, AT(struct store_problem, what), NULL, .required = true},
    {"remedy", SHOW_TEXT, AT(struct store_problem, remedy), NULL, .required = true},
};
const struct schema store_problem_schema =
    SCHEMA("StoreProblem", struct store_problem, store_problem_view);

static const struct field store_check_view[] = {
    {"whole", SHOW_FLAG, 0, "there are no problems", .required = true},
    {"machines", SHOW_NUMBER, 0, "that were looked at", .required = true},
    {"unchecked", SHOW_NUMBER, 0, "that could not be", .required = true},
    {"stacks", SHOW_NUMBER, 0, "of steps and roots", .required = true},
    {"layers", SHOW_NUMBER, 0, "that they name", .required = true},
    {"leftovers", SHOW_NUMBER, 0, "layers that nobody names; they go when steps are next dropped",
     .required = true},
    {"problems", SHOW_JSON, 0, NULL, .required = true, .sub = &store_problem_schema},
};
const struct schema store_check_schema = SCHEMA("StoreCheck", char *, store_check_view);

static const struct field machines_view[] = {
    {"machines", SHOW_JSON, 0, NULL, .required = true, .sub = &machine_schema},
    {"next", SHOW_TEXT, 0, "cursor of the next page; absent at the end"},
};
const struct schema machines_schema = SCHEMA("Machines", char *, machines_view);

static const struct field execs_view[] = {
    {"execs", SHOW_JSON, 0, NULL, .required = true, .sub = &exec_schema},
    {"next", SHOW_TEXT, 0, "cursor of the next page; absent at the end"},
};
const struct schema execs_schema = SCHEMA("Execs", char *, execs_view);

static const struct field result_view[] = {
    {"exec", SHOW_OBJECT, 0, NULL, .required = true, .sub = &exec_schema},
    {"stdout", SHOW_TEXT, 0, "when it is text"},
    {"stdout_base64", SHOW_TEXT, 0, "when it is not"},
    {"stdout_left_out", SHOW_NUMBER, 0, "bytes between head and tail that are not in the answer"},
    {"stderr", SHOW_TEXT, 0, NULL},
    {"stderr_base64", SHOW_TEXT, 0, NULL},
    {"stderr_left_out", SHOW_NUMBER, 0, NULL},
};
const struct schema result_schema = SCHEMA("Result", struct exec_view, result_view);

static const struct field error_view[] = {
    {"code", SHOW_TEXT, 0, NULL, .required = true},
    {"message", SHOW_TEXT, 0, NULL, .required = true},
    {"cause", SHOW_TEXT, 0, NULL},
    {"remedy", SHOW_TEXT, 0, NULL},
    {"approval_url", SHOW_TEXT, 0, NULL},
};
static const struct schema error_inner_schema = SCHEMA("ErrorBody", char *, error_view);
static const struct field error_outer[] = {
    {"error", SHOW_OBJECT, 0, NULL, .required = true, .sub = &error_inner_schema},
};
const struct schema error_schema = SCHEMA("Error", char *, error_outer);

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
    {"same", SHOW_FLAG, 0, "sqlite: nothing differs from what was handed over"},
    {"diff", SHOW_TEXT, 0, "sqlite: schema and rows, - before and + now"},
    {"cut", SHOW_FLAG, 0, "sqlite: there is more than is shown"},
    {"database", SHOW_TEXT, 0, "postgres: its name on the server; it is dropped at the end"},
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
     "and a rule that lets requests like it through"},
    {"ttl", FIELD_DURATION, AT(struct approval_request, ttl), "the same, for so long", .min = 1,
     .max = DAYS(3650)},
};
const struct schema approval_request_schema =
    SCHEMA("Approval", struct approval_request, approval_request);

static const struct field pendings_view[] = {
    {"pending", SHOW_JSON, 0, "id, machine, host, port, protocol, method, path, rule, left_ms ...",
     .required = true},
};
const struct schema pendings_schema = SCHEMA("Pending", char *, pendings_view);

static const struct field done_view[] = {
    {"warnings", SHOW_TEXT, 0, NULL},
};
const struct schema done_schema = SCHEMA("Done", char *, done_view);

static const struct field entry_view[] = {
    {"name", SHOW_TEXT, AT(struct entry_view, name), NULL, .required = true},
    {"type", SHOW_TEXT, AT(struct entry_view, type), "file, directory, symlink or other",
     .required = true},
    {"mode", SHOW_CHARS, AT(struct entry_view, mode), "octal", .required = true},
    {"size", SHOW_NUMBER, AT(struct entry_view, size), NULL, .required = true},
    {"uid", SHOW_NUMBER, AT(struct entry_view, uid), NULL, .required = true},
    {"gid", SHOW_NUMBER, AT(struct entry_view, gid), NULL, .required = true},
    {"modified", SHOW_TIME, AT(struct entry_view, mtime_ms), NULL},
    {"target", SHOW_TEXT, AT(struct entry_view, target), "of a symlink"},
};
const struct schema entry_schema = SCHEMA("Entry", struct entry_view, entry_view);

static const struct field entries_view[] = {
    {"entries", SHOW_JSON, 0, NULL, .required = true, .sub = &entry_schema},
    {"next", SHOW_TEXT, 0, "cursor of the next page; absent at the end"},
};
const struct schema entries_schema = SCHEMA("Entries", char *, entries_view);

static const struct field written_view[] = {
    {"sha256", SHOW_TEXT, 0, "of the file as it is now"},
    {"size", SHOW_NUMBER, 0, NULL},
    {"left_out", SHOW_TEXT, 0,
     "what an archive had and was not unpacked, a line each with its reason"},
};
const struct schema written_schema = SCHEMA("Written", char *, written_view);

static const struct field token_request[] = {
    {"owner", FIELD_TEXT, AT(struct token_request, owner), "default: the caller",
     .max = NAME_MAX_BYTES},
    {"note", FIELD_TEXT, AT(struct token_request, note), "what it is for", .max = NAME_MAX_BYTES},
    {"scopes", FIELD_TEXTS, AT(struct token_request, scopes), "of read, run, admin", .max = 3},
    {"machines", FIELD_NUMBER, AT(struct token_request, machines), "quota", .max = 1 << 20},
    {"cpus", FIELD_CPUS, AT(struct token_request, cpus), "quota", .max = 1024000},
    {"mem", FIELD_SIZE, AT(struct token_request, mem), "quota", .max = 1ull << 44},
    {"disk", FIELD_SIZE, AT(struct token_request, disk), "quota", .max = 1ull << 46},
    {"lifetime", FIELD_DURATION, AT(struct token_request, lifetime), "longest ttl of a machine",
     .max = DAYS(3650)},
};
const struct schema token_request_schema =
    SCHEMA("TokenRequest", struct token_request, token_request);

static const struct field token_view[] = {
    {"id", SHOW_TEXT, AT(struct token_view, id), NULL, .required = true},
    {"owner", SHOW_TEXT, AT(struct token_view, owner), NULL, .required = true},
    {"note", SHOW_TEXT, AT(struct token_view, note), NULL},
    {"secret", SHOW_TEXT, AT(struct token_view, secret), "shown only once, when it is made"},
    {"scopes", SHOW_CHARS, AT(struct token_view, scopes), NULL, .required = true},
    {"created", SHOW_TIME, AT(struct token_view, created_ms), NULL, .required = true},
    {"used", SHOW_TIME, AT(struct token_view, used_ms), "exact to a minute"},
    {"revoked", SHOW_TIME, AT(struct token_view, revoked_ms), NULL},
    {"machines", SHOW_NUMBER, AT(struct token_view, machines), "quota; 0: none", .required = true},
    {"cpus", SHOW_CPUS, AT(struct token_view, cpus), "quota; 0: none", .required = true},
    {"mem", SHOW_NUMBER, AT(struct token_view, mem), "quota; 0: none", .required = true},
    {"disk", SHOW_NUMBER, AT(struct token_view, disk), "quota; 0: none", .required = true},
    {"lifetime_ms", SHOW_NUMBER, AT(struct token_view, lifetime_ms), "quota; 0: none",
     .required = true},
};
const struct schema token_schema = SCHEMA("Token", struct token_view, token_view);

static const struct field tokens_view[] = {
    {"tokens", SHOW_JSON, 0, NULL, .required = true, .sub = &token_schema},
};
const struct schema tokens_schema = SCHEMA("Tokens", char *, tokens_view);

static const struct field verify_view[] = {
    {"whole", SHOW_FLAG, 0, NULL, .required = true},
    {"records", SHOW_NUMBER, 0, NULL, .required = true},
    {"segments", SHOW_NUMBER, 0, NULL, .required = true},
    {"first", SHOW_NUMBER, 0, "number of its first record; 1 unless older ones were forgotten",
     .required = true},
    {"head", SHOW_TEXT, 0, "SEQ:HASH of the chain's end", .required = true},
    {"signed", SHOW_NUMBER, 0, "the last signature covers up to here", .required = true},
    {"problem", SHOW_TEXT, 0, NULL},
    {"segment", SHOW_TEXT, 0, "of the first broken record"},
    {"line", SHOW_NUMBER, 0, NULL},
    {"seq", SHOW_NUMBER, 0, NULL},
};
const struct schema verify_schema = SCHEMA("Verification", char *, verify_view);

static const struct field status_view[] = {
    {"version", SHOW_TEXT, 0, NULL, .required = true},
    {"pid", SHOW_NUMBER, 0, NULL, .required = true},
    {"commands", SHOW_NUMBER, 0, "running", .required = true},
    {"machines", SHOW_JSON, 0, "by state", .required = true},
    {"box", SHOW_JSON, 0, "the spawner's own status"},
    {"box_error", SHOW_TEXT, 0, NULL},
};
const struct schema status_schema = SCHEMA("Status", char *, status_view);

/* ---- change sets ---- */

static const char *const ship_actions[] = {"ship", "shipped", "undo", "undone", NULL};

static const struct field freeze_request[] = {
    {"path", FIELD_TEXT, AT(struct freeze_request, path),
     "a directory of the machine, absolute (default /outbox)", .max = 4095},
    {"slice", FIELD_TEXT, AT(struct freeze_request, slice),
     "where what it is the work on was handed over (default: the same path)", .max = 4095},
};
const struct schema freeze_request_schema = SCHEMA("Freeze", struct freeze_request, freeze_request);

static const struct field changeset_view_fields[] = {
    {"id", SHOW_TEXT, AT(struct changeset_view, id), NULL, .required = true},
    {"owner", SHOW_TEXT, AT(struct changeset_view, owner), NULL, .required = true},
    {"machine", SHOW_TEXT, AT(struct changeset_view, machine), NULL, .required = true},
    {"path", SHOW_TEXT, AT(struct changeset_view, path), NULL, .required = true},
    {"slice", SHOW_TEXT, AT(struct changeset_view, slice),
     "where what it is the work on was handed over", .required = true},
    {"sha256", SHOW_TEXT, AT(struct changeset_view, sha256), "of the archive", .required = true},
    {"tainted", SHOW_TEXT, AT(struct changeset_view, tainted),
     "the first source that is not trusted that its machine had read from"},
    {"bytes", SHOW_NUMBER, AT(struct changeset_view, bytes), "of the archive", .required = true},
    {"created", SHOW_TIME, AT(struct changeset_view, created_ms), NULL, .required = true},
    {"machine_ms", SHOW_NUMBER, AT(struct changeset_view, machine_ms),
     "when the machine was made, in milliseconds since 1970", .required = true},
};
const struct schema changeset_schema =
    SCHEMA("ChangeSet", struct changeset_view, changeset_view_fields);

static const struct field ship_request[] = {
    {"action", FIELD_TEXT, AT(struct ship_request, action), NULL, .required = true,
     .choices = ship_actions},
    {"target", FIELD_TEXT, AT(struct ship_request, target), "where to, for the reader",
     .required = true, .max = 4095},
    {"sha256", FIELD_TEXT, AT(struct ship_request, sha256),
     "of the list of changes, hashes and paths", .required = true, .max = 64},
    {"files", FIELD_NUMBER, AT(struct ship_request, files), NULL, .required = true, .max = 1 << 20},
    {"intent", FIELD_NUMBER, AT(struct ship_request, intent),
     "of shipped and undone: `record` of what was announced", .max = 1ull << 60},
    {"now", FIELD_TEXT, AT(struct ship_request, now),
     "of shipped and undone: what the files that moved are now, lines as of `base`",
     .max = 4 << 20},
};
const struct schema ship_request_schema = SCHEMA("Ship", struct ship_request, ship_request);

static const struct field ship_view_fields[] = {
    {"changeset", SHOW_TEXT, AT(struct ship_view, changeset), NULL, .required = true},
    {"sha256", SHOW_TEXT, AT(struct ship_view, sha256), NULL, .required = true},
    {"record", SHOW_NUMBER, AT(struct ship_view, record), "of the journal", .required = true},
};
const struct schema ship_schema = SCHEMA("Shipped", struct ship_view, ship_view_fields);

/* ---- runs ---- */

static const char *const answer_actions[] = {"accept", "decline", "cancel", NULL};

static const struct field run_start_request[] = {
    {"task", FIELD_TEXT, AT(struct operator_request, task), "what is to be done", .required = true,
     .max = 256 << 10},
    {"machine", FIELD_TEXT, AT(struct operator_request, machine),
     "id or name (default: one is made, with nothing lent to it)", .max = 120},
    {"model", FIELD_TEXT, AT(struct operator_request, model),
     "PROVIDER/MODEL (default: as configured)", .max = 200},
    {"script", FIELD_TEXT, AT(struct operator_request, script),
     "what the provider `rehearsal` plays", .max = 4 << 20},
    {"mode", FIELD_TEXT, AT(struct operator_request, mode),
     "free (default), plan-then-execute, action-selector, map or handles", .max = 40},
    {"menu", FIELD_TEXT, AT(struct operator_request, menu),
     "of the mode action-selector: the calls that may be made, as JSON", .max = 256 << 10},
    {"guard", FIELD_FLAG, AT(struct operator_request, guard),
     "guard its machine, as in MachineRequest"},
    {"keys", FIELD_MAP, AT(struct operator_request, keys),
     "environment variables of the provider; kept in memory for this run only",
     .max = OPERATOR_KEYS_MAX},
    {"steps", FIELD_NUMBER, AT(struct operator_request, steps), "turns of the model (default 200)",
     .min = 1, .max = 5000},
    {"tokens", FIELD_NUMBER, AT(struct operator_request, tokens),
     "of all kinds (default: no limit)", .min = 1, .max = 1ull << 40},
    {"money_micro", FIELD_NUMBER, AT(struct operator_request, money),
     "millionths of the unit of the prices (default: no limit)", .min = 1, .max = 1ull << 50},
    {"wall", FIELD_DURATION, AT(struct operator_request, wall), "time (default: no limit)",
     .min = 1, .max = 30ull * 24 * 3600 * 1000},
    {"ask_deviations", FIELD_FLAG, AT(struct operator_request, asks),
     "of plan-then-execute: a call that is not in the plan waits for its owner's approval, and is "
     "not refused at once"},
    {"tries", FIELD_NUMBER, AT(struct operator_request, tries),
     "so many runs at once, on forks of the machine or on machines made for them: the best one's "
     "machine stays, tokens and money are of all together",
     .min = 1, .max = 8},
    {"check", FIELD_TEXT, AT(struct operator_request, check),
     "of tries: a command that exits with 0 where the work is good", .max = 64 << 10},
    {"machines", FIELD_TEXTS, AT(struct operator_request, machines),
     "of tries: these instead, one each; all but the best one's are removed", .max = 8},
};
const struct schema run_start_request_schema =
    SCHEMA("RunStart", struct operator_request, run_start_request);

static const struct field run_resume_request[] = {
    {"keys", FIELD_MAP, AT(struct run_resume_request, keys), "as when it was started",
     .max = OPERATOR_KEYS_MAX},
    {"comment", FIELD_TEXT, AT(struct run_resume_request, comment),
     "of a run that has ended: its work is returned, and this is its next message",
     .max = 64 << 10},
};
const struct schema run_resume_request_schema =
    SCHEMA("RunResume", struct run_resume_request, run_resume_request);

static const struct field run_answer_request[] = {
    {"action", FIELD_TEXT, AT(struct run_answer_request, action), "default accept",
     .choices = answer_actions},
    {"answer", FIELD_TEXT, AT(struct run_answer_request, answer), "with accept", .max = 64 << 10},
};
const struct schema run_answer_request_schema =
    SCHEMA("RunAnswer", struct run_answer_request, run_answer_request);

static const struct field run_view_fields[] = {
    {"id", SHOW_TEXT, AT(struct run_view, id), NULL, .required = true},
    {"owner", SHOW_TEXT, AT(struct run_view, owner), NULL, .required = true},
    {"machine", SHOW_TEXT, AT(struct run_view, machine), NULL, .required = true},
    {"model", SHOW_TEXT, AT(struct run_view, model), NULL, .required = true},
    {"task", SHOW_TEXT, AT(struct run_view, task), NULL, .required = true},
    {"mode", SHOW_TEXT, AT(struct run_view, mode), NULL, .required = true},
    {"state", SHOW_TEXT, AT(struct run_view, state), "running, waiting, interrupted or ended",
     .required = true},
    {"status", SHOW_TEXT, AT(struct run_view, status),
     "of an end: done, partial, blocked, budget, stuck, format_error, refused, failed, cancelled"},
    {"reason", SHOW_TEXT, AT(struct run_view, reason), "why it was interrupted"},
    {"question", SHOW_JSON, AT(struct run_view, question), "what it waits for"},
    {"created", SHOW_TIME, AT(struct run_view, created_ms), NULL, .required = true},
    {"turns", SHOW_NUMBER, AT(struct run_view, turns), "of the model", .required = true},
    {"calls", SHOW_NUMBER, AT(struct run_view, calls), "of tools", .required = true},
    {"tokens", SHOW_NUMBER, AT(struct run_view, tokens), "spent", .required = true},
    {"cost_micro", SHOW_NUMBER, AT(struct run_view, cost_micro), "spent", .required = true},
    {"wall_ms", SHOW_NUMBER, AT(struct run_view, wall_ms), "spent", .required = true},
    {"lines", SHOW_NUMBER, AT(struct run_view, lines), "of its transcript", .required = true},
    {"report", SHOW_JSON, AT(struct run_view, report), "what was done, evidence, what is left"},
};
const struct schema run_schema = SCHEMA("Run", struct run_view, run_view_fields);

static const struct field runs_view[] = {
    {"runs", SHOW_JSON, 0, NULL, .required = true, .sub = &run_schema},
};
const struct schema runs_schema = SCHEMA("Runs", char *, runs_view);

const struct schema *const all_schemas[] = {
    &freeze_request_schema,
    &changeset_schema,
    &ship_request_schema,
    &ship_schema,
    &run_start_request_schema,
    &run_resume_request_schema,
    &run_answer_request_schema,
    &run_schema,
    &runs_schema,
    &token_request_schema,
    &token_schema,
    &tokens_schema,
    &verify_schema,
    &status_schema,
    &mkdir_request_schema,
    &move_request_schema,
    &chmod_request_schema,
    &chown_request_schema,
    &symlink_request_schema,
    &entry_schema,
    &entries_schema,
    &written_schema,
    &machine_request_schema,
    &update_request_schema,
    &limits_request_schema,
    &net_request_schema,
    &network_schema,
    &models_request_schema,
    &secret_request_schema,
    &grant_request_schema,
    &secret_grant_request_schema,
    &expose_request_schema,
    &exposure_schema,
    &exposures_schema,
    &secrets_schema,
    &grants_schema,
    &grant_diff_schema,
    &approval_request_schema,
    &pendings_schema,
    &dir_request_schema,
    &exec_request_schema,
    &run_request_schema,
    &signal_request_schema,
    &resize_request_schema,
    &snap_request_schema,
    &rewind_request_schema,
    &hibernate_request_schema,
    &fork_request_schema,
    &step_schema,
    &image_request_schema,
    &tag_request_schema,
    &image_schema,
    &images_schema,
    &pruned_schema,
    &steps_schema,
    &diff_schema,
    &store_check_schema,
    &store_problem_schema,
    &diff_end_schema,
    &change_schema,
    &change_side_schema,
    &machine_schema,
    &machines_schema,
    &limits_schema,
    &stats_schema,
    &exec_schema,
    &execs_schema,
    &usage_schema,
    &result_schema,
    &error_schema,
    &error_inner_schema,
    &done_schema,
    NULL,
};
