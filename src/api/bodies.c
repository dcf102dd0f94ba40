/* Schemas of errors, tokens and the daemon itself; body_*.c has those of the other objects. */
#include "api/bodies.h"

#include "api/body_fields.h"
#include "service/tokens.h"
#include "service/view.h"

static const char *const error_codes[] = {"internal", "invalid", "not_found", "exists",
                                          "denied",   "limit",   "busy",      "unsupported",
                                          "gone",     "unknown", "timeout",   NULL};
static const struct field error_view[] = {
    {"code", SHOW_TEXT, 0, NULL, .required = true, .choices = error_codes},
    {"message", SHOW_TEXT, 0, NULL, .required = true},
    {"cause", SHOW_TEXT, 0, NULL},
    {"remedy", SHOW_TEXT, 0, NULL},
    {"approval_url", SHOW_TEXT, 0, NULL},
};
const struct schema error_inner_schema = SCHEMA("ErrorBody", char *, error_view);
static const struct field error_outer[] = {
    {"error", SHOW_OBJECT, 0, NULL, .required = true, .sub = &error_inner_schema},
};
const struct schema error_schema = SCHEMA("Error", char *, error_outer);

static const struct field done_view[] = {
    {"warnings", SHOW_TEXT, 0, NULL},
};
const struct schema done_schema = SCHEMA("Done", char *, done_view);

static const struct field token_request[] = {
    {"owner", FIELD_TEXT, AT(struct token_request, owner),
     "owner of machines made with the token (default: the caller)", .max = NAME_MAX_BYTES},
    {"note", FIELD_TEXT, AT(struct token_request, note),
     "free text that says what the token is for", .max = NAME_MAX_BYTES},
    {"scopes", FIELD_TEXTS, AT(struct token_request, scopes),
     "rights of the token: one or more of read, run, admin", .max = 3},
    {"machines", FIELD_NUMBER, AT(struct token_request, machines), "quota: number of machines",
     .max = 1 << 20},
    {"cpus", FIELD_CPUS, AT(struct token_request, cpus), "quota: processors of all machines",
     .max = 1024000},
    {"mem", FIELD_SIZE, AT(struct token_request, mem), "quota: memory of all machines",
     .max = 1ull << 44},
    {"disk", FIELD_SIZE, AT(struct token_request, disk), "quota: disk of all machines",
     .max = 1ull << 46},
    {"max_ttl", FIELD_DURATION, AT(struct token_request, max_ttl),
     "quota: longest ttl (time to live) of a machine", .max = DAYS(3650)},
};
const struct schema token_request_schema =
    SCHEMA("TokenRequest", struct token_request, token_request);

static const struct field token_view[] = {
    {"id", SHOW_TEXT, AT(struct token_view, id), NULL, .required = true},
    {"owner", SHOW_TEXT, AT(struct token_view, owner), NULL, .required = true},
    {"note", SHOW_TEXT, AT(struct token_view, note), NULL},
    {"secret", SHOW_TEXT, AT(struct token_view, secret),
     "the secret text of the token; only in the response that creates it"},
    {"scopes", SHOW_CHARS, AT(struct token_view, scopes), NULL, .required = true},
    {"created", SHOW_TIME, AT(struct token_view, created_ms), NULL, .required = true},
    {"used", SHOW_TIME, AT(struct token_view, used_ms),
     "time of the last use, accurate to one minute"},
    {"revoked", SHOW_TIME, AT(struct token_view, revoked_ms), NULL},
    {"machines", SHOW_NUMBER, AT(struct token_view, machines), "quota of machines; 0: unlimited",
     .required = true},
    {"cpus", SHOW_CPUS, AT(struct token_view, cpus), "quota of processors; 0: unlimited",
     .required = true},
    {"mem", SHOW_NUMBER, AT(struct token_view, mem), "quota of memory; 0: unlimited",
     .required = true},
    {"disk", SHOW_NUMBER, AT(struct token_view, disk), "quota of disk space; 0: unlimited",
     .required = true},
    {"max_ttl_ms", SHOW_NUMBER, AT(struct token_view, max_ttl_ms),
     "quota: longest ttl (time to live) of a machine; 0: unlimited", .required = true},
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
    {"first", SHOW_NUMBER, 0,
     "number of the first record; greater than 1 if older records were deleted", .required = true},
    {"head", SHOW_TEXT, 0, "number and hash of the last record, as SEQ:HASH", .required = true},
    {"signed", SHOW_NUMBER, 0, "number of the last record that a signature covers",
     .required = true},
    {"problem", SHOW_TEXT, 0, NULL},
    {"segment", SHOW_TEXT, 0, "journal file with the first broken record"},
    {"line", SHOW_NUMBER, 0, NULL},
    {"seq", SHOW_NUMBER, 0, NULL},
};
const struct schema verify_schema = SCHEMA("Verification", char *, verify_view);

static const struct field room_view_fields[] = {
    {"home", SHOW_TEXT, 0, "the directory CARREL_HOME; requires the scope admin"},
    {"free_bytes", SHOW_NUMBER, 0, NULL, .required = true},
    {"total_bytes", SHOW_NUMBER, 0, NULL, .required = true},
    {"used_percent", SHOW_NUMBER, 0, NULL, .required = true},
    {"full", SHOW_FLAG, 0, "nothing new is stored until there is room", .required = true},
    {"remedy", SHOW_TEXT, 0, "what to do"},
};
const struct schema room_schema = SCHEMA("Room", char *, room_view_fields);

static const struct field tool_count_view[] = {
    {"tool", SHOW_TEXT, 0, NULL, .required = true},
    {"calls", SHOW_NUMBER, 0, NULL, .required = true},
    {"failed", SHOW_NUMBER, 0, NULL, .required = true},
    {"fallbacks", SHOW_NUMBER, 0, NULL, .required = true},
    {"wall_ms", SHOW_NUMBER, 0, NULL, .required = true},
};
const struct schema tool_count_schema = SCHEMA("ToolCount", char *, tool_count_view);

static const struct field status_view[] = {
    {"version", SHOW_TEXT, 0, NULL, .required = true},
    {"pid", SHOW_NUMBER, 0, NULL, .required = true},
    {"commands", SHOW_NUMBER, 0, "commands that run now; without the scope admin only your own",
     .required = true},
    {"machines", SHOW_JSON, 0,
     "number of machines in each state; without the scope admin only your own", .required = true,
     .shape = SHAPE_COUNTS},
    {"store", SHOW_JSON, 0, "disk of CARREL_HOME, and what to do if it is nearly full",
     .required = true, .shape = SHAPE_OBJECT, .sub = &room_schema},
    {"tools", SHOW_JSON, 0,
     "calls of each tool since the daemon started, as in Stats; requires the scope admin",
     .sub = &tool_count_schema},
    {"vm_kernel", SHOW_TEXT, 0, "kernel of vms that carrel.conf names; absent: one of /boot"},
    {"box", SHOW_JSON, 0,
     "status of the spawner (process that makes boxes); counters require the scope admin",
     .shape = SHAPE_OBJECT},
    {"box_error", SHOW_TEXT, 0, NULL},
};
const struct schema status_schema = SCHEMA("Status", char *, status_view);

static const struct field agents_view[] = {
    {"tokens", SHOW_NUMBER, 0, "token budget of a machine of an agent; 0: no limit",
     .required = true},
    {"money", SHOW_TEXT, 0, "money budget of a machine of an agent; 0: no limit", .required = true},
    {"currency", SHOW_TEXT, 0, NULL, .required = true},
    {"formats", SHOW_JSON, 0,
     "model formats (anthropic, chat, responses, gemini) whose provider has its key",
     .required = true, .shape = SHAPE_TEXTS},
    {"agents", SHOW_JSON, 0,
     "agents of carrel.conf, each with name, image, start, once, resume and env", .required = true,
     .shape = SHAPE_ROWS},
};
const struct schema agents_schema = SCHEMA("Agents", char *, agents_view);

static const struct field models_view[] = {
    {"default", SHOW_TEXT, 0, "model of runs that name none; empty: none", .required = true},
    {"currency", SHOW_TEXT, 0, NULL, .required = true},
    {"providers", SHOW_JSON, 0,
     "each with name, format, ready (a run of the caller can call it without a key of its own), "
     "key_env or key_secret (only for the user of the daemon: name of the variable of the "
     "daemon's environment, or of the secret, that holds the API key), url (requires the scope "
     "admin), and if it is not ready what is missing",
     .required = true, .shape = SHAPE_ROWS},
    {"aliases", SHOW_JSON, 0, "each with name and models, in the order in which they are tried",
     .required = true, .shape = SHAPE_ROWS},
    {"models", SHOW_JSON, 0,
     "models of carrel.conf, each with name, window, max_tokens and prices of a million tokens: "
     "in, out, cache_read, cache_write, cache_write_long",
     .required = true, .shape = SHAPE_ROWS},
};
const struct schema models_schema = SCHEMA("Models", char *, models_view);

static const struct field model_usage_view[] = {
    {"by", SHOW_TEXT, 0, "day, model, machine or owner", .required = true},
    {"currency", SHOW_TEXT, 0, NULL, .required = true},
    {"usage", SHOW_JSON, 0,
     "newest day, or dearest model, machine or owner first: each with that member, calls, tokens, "
     "in (not from a cache), cache_read, cache_write, out and money. Calls whose usage is not "
     "known count as estimated, in tokens and money only",
     .required = true, .shape = SHAPE_ROWS},
};
const struct schema model_usage_schema = SCHEMA("ModelUsage", char *, model_usage_view);

const struct schema *const all_schemas[] = {
    &freeze_request_schema,
    &changeset_schema,
    &changesets_schema,
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
    &agents_schema,
    &models_schema,
    &model_usage_schema,
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
    &login_request_schema,
    &logins_schema,
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
    &decided_schema,
    &dir_request_schema,
    &volume_use_request_schema,
    &timer_request_schema,
    &volume_request_schema,
    &volume_snap_request_schema,
    &desktop_request_schema,
    &desktop_input_schema,
    &desktop_schema,
    &volume_schema,
    &volumes_schema,
    &timer_schema,
    &timers_schema,
    &backup_prune_request_schema,
    &backup_restore_request_schema,
    &backup_schema,
    &backups_schema,
    &backup_verified_schema,
    &backup_forgotten_schema,
    &exec_request_schema,
    &run_request_schema,
    &signal_request_schema,
    &resize_request_schema,
    &snap_request_schema,
    &step_name_schema,
    &rewind_request_schema,
    &reinstall_request_schema,
    &hibernate_request_schema,
    &kind_request_schema,
    &fork_request_schema,
    &step_schema,
    &image_request_schema,
    &tag_request_schema,
    &layers_request_schema,
    &image_schema,
    &images_schema,
    &pruned_schema,
    &layers_schema,
    &build_request_schema,
    &build_step_schema,
    &build_config_schema,
    &build_schema,
    &builds_schema,
    &package_schema,
    &packages_schema,
    &cleared_schema,
    &steps_schema,
    &diff_schema,
    &store_check_schema,
    &strays_schema,
    &stray_schema,
    &store_problem_schema,
    &diff_end_schema,
    &change_schema,
    &change_side_schema,
    &machine_schema,
    &machines_schema,
    &limits_schema,
    &stats_schema,
    &sample_schema,
    &samples_schema,
    &health_schema,
    &health_check_schema,
    &exec_schema,
    &execs_schema,
    &usage_schema,
    &result_schema,
    &error_schema,
    &error_inner_schema,
    &done_schema,
    &room_schema,
    &tool_count_schema,
    &rule_schema,
    &secret_schema,
    &login_schema,
    &grant_schema,
    &port_schema,
    &pending_schema,
    &volume_place_schema,
    &exec_event_start_schema,
    &exec_event_output_schema,
    &exec_event_gap_schema,
    &exec_event_exit_schema,
    &build_line_step_schema,
    &build_line_output_schema,
    &build_line_end_schema,
    &file_event_schema,
    &event_schema,
    &record_schema,
    &run_event_schema,
    NULL,
};
