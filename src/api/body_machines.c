/* Schemas of machines: requests that create or change one, and its view. */
#include "api/body_fields.h"
#include "base/limits.h"
#include "service/view.h"
#include "service/vm/move.h"

static const char *const kinds[] = {"box", "cell", "vm", NULL};
static const char *const vm_starts[] = {"boot", "clone", "memory", NULL};
static const char *const vm_accels[] = {"kvm", "tcg", NULL};
static const char *const modes[] = {"ro", "cow", "rw", NULL};
static const char *const policies[] = {"every", "risky", "manual", NULL};
static const char *const machine_states[] = {"creating", "running", "paused", "stopped",
                                             "ending",   "ended",   NULL};
static const char *const paused_ins[] = {"memory", "disk", NULL};
static const char *const state_bys[] = {"idle", "owner", "admin", NULL};
static const char *const ttl_actions[] = {"destroy", "pause", NULL};
static const char *const idle_actions[] = {"pause", "stop", "destroy", "release", NULL};

static const struct field limits_request[] = {
    {"mem", FIELD_SIZE, AT(struct limits_request, mem), "limit of memory", .min = 1 << 20,
     .max = LIMIT_MEM_MAX},
    {"cpus", FIELD_CPUS, AT(struct limits_request, cpus), "limit of processors, at least 0.01",
     .min = LIMIT_CPU_MIN_MILLI, .max = LIMIT_CPU_MAX_MILLI},
    {"pids", FIELD_NUMBER, AT(struct limits_request, pids), "limit of processes and threads",
     .min = LIMIT_PIDS_MIN, .max = 1 << 22},
    {"disk", FIELD_SIZE, AT(struct limits_request, disk), "limit of bytes on the machine's disk",
     .min = LIMIT_DISK_MIN, .max = LIMIT_DISK_MAX},
    {"fuel", FIELD_NUMBER, AT(struct limits_request, fuel),
     "cell: limit of fuel (instructions) of each command", .min = 1, .max = LIMIT_FUEL_MAX},
    {"fuel_rate", FIELD_NUMBER, AT(struct limits_request, fuel_rate),
     "cell: limit of fuel per second of each command; 0: none", .max = LIMIT_FUEL_MAX},
};
const struct schema limits_request_schema =
    SCHEMA("LimitsRequest", struct limits_request, limits_request);

static const struct field dir_request[] = {
    {"path", FIELD_TEXT, AT(struct dir_request, path),
     "directory on the host, sent with a descriptor or below a root of "
     "carrel.conf",
     .required = true, .max = PATH_MAX_BYTES},
    {"at", FIELD_TEXT, AT(struct dir_request, at), "path in the machine (default: the same path)",
     .max = PATH_MAX_BYTES},
    {"mode", FIELD_TEXT, AT(struct dir_request, mode),
     "ro: read-only; cow (default): a copy; rw: writable", .choices = modes},
    {"untrusted", FIELD_FLAG, AT(struct dir_request, untrusted),
     "the content is untrusted: it taints the machine (marks it as having read untrusted data)"},
};
const struct schema dir_request_schema = SCHEMA("DirRequest", struct dir_request, dir_request);

static const struct field models_request[] = {
    {"allow", FIELD_FLAG, AT(struct models_request, allow),
     "allow models at http://models.carrel; a limit implies this"},
    {"tokens", FIELD_NUMBER, AT(struct models_request, tokens), "limit of tokens; 0: unlimited",
     .max = 1ull << 50},
    {"money", FIELD_MONEY, AT(struct models_request, money),
     "limit of cost, in the unit of the prices in carrel.conf; 0: unlimited", .max = 1ull << 50},
};
const struct schema models_request_schema =
    SCHEMA("ModelsRequest", struct models_request, models_request);

#define COMMON_FIELDS(type, base)                                                                  \
    {"name", FIELD_TEXT, AT(type, base name),                                                      \
     "name of the machine, unique among the owner's machines that have not ended",                 \
     .max = NAME_MAX_BYTES},                                                                       \
        {"limits", FIELD_OBJECT, AT(type, base limits),                                            \
         "limits of memory, processors, processes and disk", .sub = &limits_request_schema},       \
        {"ttl", FIELD_DURATION, AT(type, base ttl),                                                \
         "apply `on_ttl` to the machine after this time from now; 0: never", .max = DAYS(3650)},   \
        {"on_ttl", FIELD_TEXT, AT(type, base on_ttl),                                              \
         "at the end of the ttl: destroy the machine (default), or pause it, without a ttl from "  \
         "then on; a machine that cannot be paused is stopped",                                    \
         .choices = ttl_actions},                                                                  \
        {"idle", FIELD_DURATION, AT(type, base idle),                                              \
         "apply `idle_action` after this time without use; 0: never", .max = DAYS(3650)},          \
        {"idle_action", FIELD_TEXT, AT(type, base idle_action),                                    \
         "action when idle; release: delete the machine if it is unchanged, else stop it",         \
         .choices = idle_actions},                                                                 \
        {"steps", FIELD_TEXT, AT(type, base steps),                                                \
         "when to take a step (restore point): after every change, before a risky command, or on " \
         "request",                                                                                \
         .choices = policies},                                                                     \
        {"allow", FIELD_TEXT, AT(type, base allow),                                                \
         "cell: capabilities of its programs, such as `log,args`; a token needs the scope admin",  \
         .max = 256},                                                                              \
    {                                                                                              \
        "metadata", FIELD_MAP, AT(type, base metadata),                                            \
            "names and values for the caller's own use", .max = 64                                 \
    }

#define MACHINE_FIELDS(type, base)                                                                 \
    {"kind", FIELD_TEXT, AT(type, base kind), "kind of machine (default: box)", .choices = kinds}, \
        {"image", FIELD_TEXT, AT(type, base image), "image to start from (default: host)",         \
         .max = NAME_MAX_BYTES},                                                                   \
        {"hostname", FIELD_TEXT, AT(type, base hostname), NULL, .max = NAME_MAX_BYTES},            \
        COMMON_FIELDS(type, base),                                                                 \
        {"env", FIELD_MAP, AT(type, base env),                                                     \
         "environment variables of every command in the machine", .max = 256},                     \
        {"dirs",                                                                                   \
         FIELD_OBJECTS,                                                                            \
         AT(type, base dirs),                                                                      \
         "directories to grant",                                                                   \
         .max = 16,                                                                                \
         .sub = &dir_request_schema},                                                              \
        {"volumes",                                                                                \
         FIELD_OBJECTS,                                                                            \
         AT(type, base volumes),                                                                   \
         "volumes to attach; a token needs the scope admin",                                       \
         .max = 16,                                                                                \
         .sub = &volume_use_request_schema},                                                       \
        {"net",                                                                                    \
         FIELD_OBJECTS,                                                                            \
         AT(type, base net),                                                                       \
         "network rules (default: nothing is reachable)",                                          \
         .max = 64,                                                                                \
         .sub = &net_request_schema},                                                              \
        {"secrets",                                                                                \
         FIELD_OBJECTS,                                                                            \
         AT(type, base secrets),                                                                   \
         "secrets to grant, each for one host; the machine sees placeholders",                     \
         .max = 32,                                                                                \
         .sub = &secret_grant_request_schema},                                                     \
        {"grants",                                                                                 \
         FIELD_OBJECTS,                                                                            \
         AT(type, base grants),                                                                    \
         "other grants; descriptors of files follow those of directories",                         \
         .max = 64,                                                                                \
         .sub = &grant_request_schema},                                                            \
        {"expires", FIELD_DURATION,   AT(type, base expires), "revoke all grants after this time", \
         .min = 1,  .max = DAYS(3650)},                                                            \
        {"models", FIELD_OBJECT, AT(type, base models), "models that the machine may use",         \
         .sub = &models_request_schema},                                                           \
        {"unreviewed", FIELD_FLAG, AT(type, base unreviewed),                                      \
         "required for mode rw: writes go to the host without review"},                            \
        {"guard", FIELD_FLAG, AT(type, base guard),                                                \
         "once the machine has read untrusted data, only rules with `tainted` stay in force"},     \
    {                                                                                              \
        "key", FIELD_TEXT, AT(type, base key),                                                     \
            "idempotency key: a repeated request creates no second machine", .max = KEY_MAX_BYTES  \
    }

static const struct field machine_request[] = {
    MACHINE_FIELDS(struct machine_request, ),
    {"from", FIELD_TEXT, AT(struct machine_request, source),
     "start as a copy of a machine or of MACHINE@STEP, as a fork does, or from an image; limits, "
     "variables, rules and grants of this request come on top",
     .max = NAME_MAX_BYTES},
};
const struct schema machine_request_schema =
    SCHEMA("MachineRequest", struct machine_request, machine_request);

static const struct field update_request[] = {
    COMMON_FIELDS(struct update_request, ),
    {"models", FIELD_OBJECT, AT(struct update_request, models),
     "new limits for models; a token needs the scope admin", .sub = &models_request_schema},
};
const struct schema update_request_schema =
    SCHEMA("UpdateRequest", struct update_request, update_request);

static const char *const new_kinds[] = {"vm", NULL};
static const struct field kind_request[] = {
    {"kind", FIELD_TEXT, AT(struct kind_request, kind), "the new kind", .required = true,
     .choices = new_kinds},
    {"mem", FIELD_SIZE, AT(struct kind_request, mem),
     "memory of the vm (default: the limit that was set for the box, or 512M)", .min = 1 << 20,
     .max = LIMIT_MEM_MAX},
};
const struct schema kind_request_schema = SCHEMA("KindRequest", struct kind_request, kind_request);

static const struct field limits_view[] = {
    {"mem", SHOW_NUMBER, AT(struct limits_view, mem), "limit of memory, in bytes",
     .required = true},
    {"cpus", SHOW_CPUS, AT(struct limits_view, cpus),
     "limit of processors; 0: all processors of the host", .required = true},
    {"pids", SHOW_NUMBER, AT(struct limits_view, pids), NULL, .required = true},
    {"disk", SHOW_NUMBER, AT(struct limits_view, disk), "limit of disk space, in bytes",
     .required = true},
    {"fuel", SHOW_COUNT, AT(struct limits_view, fuel), "cell: limit of fuel of each command"},
    {"fuel_rate", SHOW_COUNT, AT(struct limits_view, fuel_rate),
     "cell: limit of fuel per second, if there is one"},
};
const struct schema limits_schema = SCHEMA("Limits", struct limits_view, limits_view);

static const struct field machine_view[] = {
    {"id", SHOW_TEXT, AT(struct machine_view, id), NULL, .required = true},
    {"name", SHOW_TEXT, AT(struct machine_view, name), NULL},
    {"owner", SHOW_TEXT, AT(struct machine_view, owner), NULL, .required = true},
    {"kind", SHOW_TEXT, AT(struct machine_view, kind), NULL, .required = true, .choices = kinds},
    {"image", SHOW_TEXT, AT(struct machine_view, image), "name of the image", .required = true},
    {"image_id", SHOW_TEXT, AT(struct machine_view, image_id),
     "id of the image, made from its content; absent for the image `host`"},
    {"home", SHOW_TEXT, AT(struct machine_view, home),
     "home directory of the user that commands run as; absent if the machine has ended"},
    {"cwd", SHOW_TEXT, AT(struct machine_view, cwd),
     "directory in which commands start: the first granted one of its creation, or the working "
     "directory of the image; absent if the machine has ended"},
    {"state", SHOW_TEXT, AT(struct machine_view, state), NULL, .required = true,
     .choices = machine_states},
    {"paused_in", SHOW_TEXT, AT(struct machine_view, paused_in),
     "where a paused machine has what runs in it; on disk it outlives a restart of the host",
     .choices = paused_ins},
    {"paused_why", SHOW_TEXT, AT(struct machine_view, paused_why),
     "why that is not on disk, if this daemon paused it"},
    {"state_by", SHOW_TEXT, AT(struct machine_view, state_by),
     "who paused or stopped the machine, if known; idle: the idle timeout", .choices = state_bys},
    {"reason", SHOW_TEXT, AT(struct machine_view, reason),
     "why the machine ended, or was stopped by a restart of the host"},
    {"created", SHOW_TIME, AT(struct machine_view, created_ms), NULL, .required = true},
    {"ended", SHOW_TIME, AT(struct machine_view, ended_ms), NULL},
    {"expires", SHOW_TIME, AT(struct machine_view, expires_ms),
     "end of the machine's ttl, when `on_ttl` applies"},
    {"on_ttl", SHOW_TEXT, AT(struct machine_view, on_ttl), NULL, .choices = ttl_actions},
    {"limits", SHOW_OBJECT, AT(struct machine_view, limits), NULL, .required = true,
     .sub = &limits_schema},
    {"idle_ms", SHOW_NUMBER, AT(struct machine_view, idle_ms),
     "time without use before `idle_action`; 0: never", .required = true},
    {"idle_action", SHOW_TEXT, AT(struct machine_view, idle_action), NULL, .choices = idle_actions},
    {"steps", SHOW_TEXT, AT(struct machine_view, steps), "when steps are taken", .required = true,
     .choices = policies},
    {"allow", SHOW_TEXT, AT(struct machine_view, allow),
     "cell: capabilities of its programs, such as `log,args`; absent: none"},
    {"metadata", SHOW_JSON, AT(struct machine_view, metadata), NULL, .shape = SHAPE_MAP},
    {"volumes", SHOW_JSON, AT(struct machine_view, volumes),
     "volumes of the machine, each with name, at and mode; only if one machine is shown",
     .sub = &volume_place_schema},
    {"commands", SHOW_NUMBER, AT(struct machine_view, commands), "commands that run now",
     .required = true},
    {"disk_bytes", SHOW_NUMBER, AT(struct machine_view, disk_bytes),
     "bytes on disk of the machine's files and steps at the last measurement, without files that "
     "it shares with its image or the machines it was forked from",
     .required = true},
    {"step_count", SHOW_NUMBER, AT(struct machine_view, step_count), NULL, .required = true},
    {"drifted", SHOW_FLAG, AT(struct machine_view, drifted),
     "the host's packages changed since the machine was created", .required = true},
    {"warnings", SHOW_TEXT, AT(struct machine_view, warnings), NULL},
    {"start", SHOW_TEXT, AT(struct machine_view, start),
     "vm: how it started, if this daemon did it: `boot`, as a `clone` of a template, or with saved "
     "`memory`",
     .choices = vm_starts},
    {"accel", SHOW_TEXT, AT(struct machine_view, accel),
     "vm: what runs its code, if this daemon started it: the processor (`kvm`), or QEMU, which "
     "translates it (`tcg`)",
     .choices = vm_accels},
    {"unreached", SHOW_TEXT, AT(struct machine_view, unreached),
     "why the machine is unreachable; the daemon retries"},
    {"undurable", SHOW_TEXT, AT(struct machine_view, undurable),
     "why the newest step is not on disk yet; the daemon retries"},
};
const struct schema machine_schema = SCHEMA("Machine", struct machine_view, machine_view);

#define COUNTED "absent if this host does not count it"

static const struct field stats_view[] = {
    {"cpu_us", SHOW_COUNT, AT(struct stats_view, cpu_us), COUNTED},
    {"mem_bytes", SHOW_COUNT, AT(struct stats_view, mem_bytes), COUNTED},
    {"mem_peak_bytes", SHOW_COUNT, AT(struct stats_view, mem_peak_bytes), COUNTED},
    {"mem_limit_bytes", SHOW_COUNT, AT(struct stats_view, mem_limit_bytes), COUNTED},
    {"pids", SHOW_COUNT, AT(struct stats_view, pids), COUNTED},
    {"io_bytes", SHOW_COUNT, AT(struct stats_view, io_bytes), COUNTED},
    {"disk_bytes", SHOW_NUMBER, AT(struct stats_view, disk_bytes), NULL, .required = true},
    {"oom_kills", SHOW_COUNT, AT(struct stats_view, oom_kills), COUNTED},
    {"pids_refused", SHOW_COUNT, AT(struct stats_view, pids_refused), COUNTED},
    {"lookups_refused", SHOW_NUMBER, AT(struct stats_view, lookups_refused),
     "DNS lookups that were refused", .required = true},
    {"frozen", SHOW_FLAG, AT(struct stats_view, frozen), NULL, .required = true},
    {"models", SHOW_JSON, AT(struct stats_view, models),
     "calls, tokens and cost of models, and the rest of each limit", .shape = SHAPE_OBJECT},
    {"tools", SHOW_JSON, AT(struct stats_view, tools),
     "calls of each tool since the daemon started: a list of tool, calls, failed, fallbacks and "
     "wall_ms",
     .sub = &tool_count_schema},
};
static const char *const health_states[] = {"unknown", "good", "bad", NULL};
static const char *const health_names[] = {"guest", "disk",   "files",  "memory",
                                           "units", "upkeep", "backup", NULL};
static const struct field health_check[] = {
    {"name", SHOW_TEXT, 0, NULL, .required = true, .choices = health_names},
    {"state", SHOW_TEXT, 0, NULL, .required = true, .choices = health_states},
    {"text", SHOW_TEXT, 0, "what was found, for people", .required = true},
};
const struct schema health_check_schema = SCHEMA("HealthCheck", char *, health_check);

static const struct field health_view[] = {
    {"machine", SHOW_TEXT, 0, NULL, .required = true},
    {"state", SHOW_TEXT, 0, "the worst state of the checks", .required = true,
     .choices = health_states},
    {"checks", SHOW_JSON, 0,
     "guest: it answers; disk and files: space is left; memory: no process was killed since the "
     "last check; units: none of systemd has failed; upkeep: the last runs of its tasks; backup: "
     "age of the newest",
     .required = true, .sub = &health_check_schema},
};
const struct schema health_schema = SCHEMA("Health", char *, health_view);

const struct schema stats_schema = SCHEMA("Stats", struct stats_view, stats_view);

static const struct field sample_view[] = {
    {"machine", SHOW_TEXT, 0, "id of the machine", .required = true},
    {"stats", SHOW_JSON, 0, NULL, .required = true, .shape = SHAPE_OBJECT, .sub = &stats_schema},
    {"argv", SHOW_JSON, 0,
     "words of the newest running command, or `…` if they are longer than 4 KiB; absent: none runs",
     .shape = SHAPE_TEXTS},
};
const struct schema sample_schema = SCHEMA("MachineStats", char *, sample_view);

static const struct field samples_view[] = {
    {"machines", SHOW_JSON, 0, "without machines that have ended, or have no processes",
     .required = true, .sub = &sample_schema},
};
const struct schema samples_schema = SCHEMA("StatsList", char *, samples_view);

static const struct field machines_view[] = {
    {"machines", SHOW_JSON, 0, NULL, .required = true, .sub = &machine_schema},
    {"next", SHOW_TEXT, 0, "cursor of the next page; absent on the last page"},
    {"left_alone", SHOW_NUMBER, 0,
     "for administrators: number of boxes on this host that do not belong to this store"},
    {"store", SHOW_JSON, 0,
     "state of the disk of the store, if it is full; same format as in Status",
     .shape = SHAPE_OBJECT, .sub = &room_schema},
};
const struct schema machines_schema = SCHEMA("Machines", char *, machines_view);
