/* Schemas of change sets (frozen work of a machine) and of runs of the operator. */
#include "api/body_fields.h"
#include "operator/operator.h"
#include "service/review/changesets.h"

static const char *const ship_actions[] = {"ship", "shipped", "undo", "undone", NULL};

static const struct field freeze_request[] = {
    {"path", FIELD_TEXT, AT(struct freeze_request, path),
     "absolute path of a directory in the machine, or of a granted database (default /outbox)",
     .max = 4095},
    {"slice", FIELD_TEXT, AT(struct freeze_request, slice),
     "path in the machine of the grant that the work started from (default: the same path)",
     .max = 4095},
    {"changes_only", FIELD_FLAG, AT(struct freeze_request, changes_only),
     "of a granted directory (dir, cow), freeze only what the machine changed; the answer says "
     "whether this was possible"},
};
const struct schema freeze_request_schema = SCHEMA("Freeze", struct freeze_request, freeze_request);

static const char *const changeset_states[] = {"pending",    "returned", "shipped", "undone",
                                               "superseded", "dropped",  NULL};
static const char *const changeset_kinds[] = {"dir", "repo", "sqlite", "postgres", NULL};
static const struct field changeset_view_fields[] = {
    {"id", SHOW_TEXT, AT(struct changeset_view, id), NULL, .required = true},
    {"owner", SHOW_TEXT, AT(struct changeset_view, owner), NULL, .required = true},
    {"machine", SHOW_TEXT, AT(struct changeset_view, machine), NULL, .required = true},
    {"path", SHOW_TEXT, AT(struct changeset_view, path), NULL, .required = true},
    {"machine_name", SHOW_TEXT, AT(struct changeset_view, machine_name),
     "name of the machine when the change set was made"},
    {"slice", SHOW_TEXT, AT(struct changeset_view, slice),
     "path in the machine of the grant that the work started from", .required = true},
    {"grant", SHOW_TEXT, AT(struct changeset_view, grant),
     "id of the grant that the work started from"},
    {"kind", SHOW_TEXT, AT(struct changeset_view, kind), "kind of the grant",
     .choices = changeset_kinds},
    {"home", SHOW_TEXT, AT(struct changeset_view, home),
     "path or name of the granted object on the owner's side"},
    {"ref", SHOW_TEXT, AT(struct changeset_view, ref), "repo: branch or tag that was cloned"},
    {"base_sha256", SHOW_TEXT, AT(struct changeset_view, base_sha256),
     "sqlite: SHA-256 of the granted copy of the database"},
    {"revoked", SHOW_FLAG, AT(struct changeset_view, revoked),
     "the grant was revoked later: shipping needs an explicit target", .required = true},
    {"changes_only", SHOW_FLAG, AT(struct changeset_view, changes_only),
     "the archive has only what the machine changed, and the baseline only these paths and what "
     "was deleted",
     .required = true},
    {"sha256", SHOW_TEXT, AT(struct changeset_view, sha256),
     "SHA-256 of the archive of the change set", .required = true},
    {"tainted", SHOW_TEXT, AT(struct changeset_view, tainted),
     "first untrusted source that the machine had read from"},
    {"image_files", SHOW_JSON, AT(struct changeset_view, image_files),
     "without a grant: paths of files that are unchanged since the image", .shape = SHAPE_TEXTS},
    {"bytes", SHOW_NUMBER, AT(struct changeset_view, bytes),
     "size of the archive of the change set", .required = true},
    {"created", SHOW_TIME, AT(struct changeset_view, created_ms), NULL, .required = true},
    {"machine_ms", SHOW_NUMBER, AT(struct changeset_view, machine_ms),
     "when the machine was created, in milliseconds since 1970", .required = true},
    {"state", SHOW_TEXT, AT(struct changeset_view, state),
     "what became of it; absent in the answer to a freeze. returned: to the model, with a comment; "
     "dropped: its files were deleted because it was old",
     .choices = changeset_states},
    {"instead", SHOW_TEXT, AT(struct changeset_view, instead),
     "superseded: the change set that was frozen later of the same, or with the same content and "
     "shipped or undone before"},
};
const struct schema changeset_schema =
    SCHEMA("ChangeSet", struct changeset_view, changeset_view_fields);

static const struct field changesets_view[] = {
    {"changesets", SHOW_JSON, 0, "without `image_files`", .required = true,
     .sub = &changeset_schema},
    {"next", SHOW_TEXT, 0, "cursor of the next page; absent on the last page"},
};
const struct schema changesets_schema = SCHEMA("ChangeSets", char *, changesets_view);

static const struct field ship_request[] = {
    {"action", FIELD_TEXT, AT(struct ship_request, action), NULL, .required = true,
     .choices = ship_actions},
    {"target", FIELD_TEXT, AT(struct ship_request, target),
     "directory, branch or file to ship to, as text for the journal", .required = true,
     .max = 4095},
    {"sha256", FIELD_TEXT, AT(struct ship_request, sha256),
     "SHA-256 of the list of changes (hashes and paths)", .required = true, .max = 64},
    {"files", FIELD_NUMBER, AT(struct ship_request, files), NULL, .required = true, .max = 1 << 20},
    {"intent", FIELD_NUMBER, AT(struct ship_request, intent),
     "shipped, undone: `record` from the answer to ship or undo", .max = 1ull << 60},
    {"now", FIELD_TEXT, AT(struct ship_request, now),
     "shipped, undone: present state of these files, in the format of GET "
     "/v1/changesets/{changeset}/base",
     .max = 4 << 20},
};
const struct schema ship_request_schema = SCHEMA("Ship", struct ship_request, ship_request);

static const struct field ship_view_fields[] = {
    {"changeset", SHOW_TEXT, AT(struct ship_view, changeset), NULL, .required = true},
    {"sha256", SHOW_TEXT, AT(struct ship_view, sha256), NULL, .required = true},
    {"record", SHOW_NUMBER, AT(struct ship_view, record), "number of the journal record",
     .required = true},
};
const struct schema ship_schema = SCHEMA("Shipped", struct ship_view, ship_view_fields);

static const char *const answer_actions[] = {"accept", "decline", "cancel", NULL};

static const struct field run_start_request[] = {
    {"task", FIELD_TEXT, AT(struct operator_request, task), "the task, as text", .required = true,
     .max = 256 << 10},
    {"machine", FIELD_TEXT, AT(struct operator_request, machine),
     "id or name of the machine (default: a new machine without grants)", .max = 120},
    {"model", FIELD_TEXT, AT(struct operator_request, model),
     "PROVIDER/MODEL (default: from carrel.conf); for a provider of carrel.conf a token needs the "
     "scope admin",
     .max = 200},
    {"script", FIELD_TEXT, AT(struct operator_request, script),
     "script of model answers for `rehearsal`, a provider for tests", .max = 4 << 20},
    {"mode", FIELD_TEXT, AT(struct operator_request, mode),
     "free (default), plan-then-execute, action-selector, map or handles", .max = 40},
    {"menu", FIELD_TEXT, AT(struct operator_request, menu),
     "action-selector: allowed tool calls, as JSON", .max = 256 << 10},
    {"guard", FIELD_FLAG, AT(struct operator_request, guard),
     "set `guard` of the machine; see MachineRequest"},
    {"keys", FIELD_MAP, AT(struct operator_request, keys),
     "environment variables of the provider, kept in memory for this run only; a token needs the "
     "scope admin to set its base URL",
     .max = OPERATOR_KEYS_MAX},
    {"turns", FIELD_NUMBER, AT(struct operator_request, turns),
     "limit of model turns (default 200)", .min = 1, .max = 5000},
    {"tokens", FIELD_NUMBER, AT(struct operator_request, tokens),
     "limit of tokens of all kinds (default: unlimited)", .min = 1, .max = 1ull << 40},
    {"money_micro", FIELD_NUMBER, AT(struct operator_request, money),
     "limit of cost, in millionths of the price unit (default: unlimited)", .min = 1,
     .max = 1ull << 50},
    {"timeout", FIELD_DURATION, AT(struct operator_request, timeout),
     "limit of wall-clock time, without waiting for approvals (default: unlimited)", .min = 1,
     .max = 30ull * 24 * 3600 * 1000},
    {"ask_deviations", FIELD_FLAG, AT(struct operator_request, asks),
     "plan-then-execute: ask the owner about a tool call that is not in the plan, instead of "
     "refusing "
     "it"},
    {"tries", FIELD_NUMBER, AT(struct operator_request, tries),
     "number of parallel attempts, on forks of the machine or on new machines; only the best "
     "machine is kept, and all attempts share the limits of tokens and cost",
     .min = 1, .max = 8},
    {"check", FIELD_TEXT, AT(struct operator_request, check),
     "tries: command that exits with 0 if the work is good", .max = 64 << 10},
    {"check_files", FIELD_MAP, AT(struct operator_request, check_files),
     "tries: files for the check by absolute path, which replace those in the machine; at most 1 "
     "MiB in total",
     .max = OPERATOR_FILES_MAX},
    {"machines", FIELD_TEXTS, AT(struct operator_request, machines),
     "tries: use these machines, one per attempt; all but the best are removed, and all if the run "
     "is cancelled",
     .max = 8},
};
const struct schema run_start_request_schema =
    SCHEMA("RunStart", struct operator_request, run_start_request);

static const struct field run_resume_request[] = {
    {"keys", FIELD_MAP, AT(struct run_resume_request, keys),
     "same as in the request that started the run", .max = OPERATOR_KEYS_MAX},
    {"comment", FIELD_TEXT, AT(struct run_resume_request, back.comment),
     "for a run that has ended: continue its work with this message", .max = 64 << 10},
    {"key", FIELD_TEXT, AT(struct run_resume_request, back.key),
     "idempotency key of `comment`: a repeated request does not add it twice",
     .max = RUN_RETURN_KEY_MAX},
};
const struct schema run_resume_request_schema =
    SCHEMA("RunResume", struct run_resume_request, run_resume_request);

static const struct field run_answer_request[] = {
    {"question", FIELD_TEXT, AT(struct run_answer, question),
     "id of the question, from `question` of the run", .required = true, .max = 40},
    {"action", FIELD_TEXT, AT(struct run_answer, action),
     "decision of the user about the question (default: accept)", .choices = answer_actions},
    {"answer", FIELD_TEXT, AT(struct run_answer, answer), "text of the answer, for accept",
     .max = 64 << 10},
};
const struct schema run_answer_request_schema =
    SCHEMA("RunAnswer", struct run_answer, run_answer_request);

static const char *const run_modes[] = {"free", "plan-then-execute", "action-selector",
                                        "map",  "handles",           NULL};
static const char *const run_states[] = {"running", "waiting", "interrupted", "ended", NULL};
static const char *const run_statuses[] = {
    "done",         "partial", "blocked", "budget",    "stuck",
    "format_error", "refused", "failed",  "cancelled", NULL};
static const struct field run_view_fields[] = {
    {"id", SHOW_TEXT, AT(struct run_view, id), NULL, .required = true},
    {"owner", SHOW_TEXT, AT(struct run_view, owner), NULL, .required = true},
    {"machine", SHOW_TEXT, AT(struct run_view, machine), NULL, .required = true},
    {"model", SHOW_TEXT, AT(struct run_view, model), NULL, .required = true},
    {"task", SHOW_TEXT, AT(struct run_view, task), NULL, .required = true},
    {"mode", SHOW_TEXT, AT(struct run_view, mode), NULL, .required = true, .choices = run_modes},
    {"state", SHOW_TEXT, AT(struct run_view, state), NULL, .required = true, .choices = run_states},
    {"status", SHOW_TEXT, AT(struct run_view, status), "how the run ended",
     .choices = run_statuses},
    {"reason", SHOW_TEXT, AT(struct run_view, reason), "why the run was interrupted"},
    {"question", SHOW_JSON, AT(struct run_view, question),
     "question whose answer the run waits for, with its id", .shape = SHAPE_OBJECT},
    {"created", SHOW_TIME, AT(struct run_view, created_ms), NULL, .required = true},
    {"turns", SHOW_NUMBER, AT(struct run_view, turns), "number of model turns", .required = true},
    {"calls", SHOW_NUMBER, AT(struct run_view, calls), "number of tool calls", .required = true},
    {"tokens", SHOW_NUMBER, AT(struct run_view, tokens), "tokens used", .required = true},
    {"cost_micro", SHOW_NUMBER, AT(struct run_view, cost_micro),
     "cost in millionths of the price unit", .required = true},
    {"wall_ms", SHOW_NUMBER, AT(struct run_view, wall_ms), "wall-clock time used",
     .required = true},
    {"lines", SHOW_NUMBER, AT(struct run_view, lines), "number of lines of the transcript",
     .required = true},
    {"report", SHOW_JSON, AT(struct run_view, report), "work done, evidence, work left",
     .shape = SHAPE_OBJECT},
};
const struct schema run_schema = SCHEMA("Run", struct run_view, run_view_fields);

static const struct field runs_view[] = {
    {"runs", SHOW_JSON, 0, NULL, .required = true, .sub = &run_schema},
};
const struct schema runs_schema = SCHEMA("Runs", char *, runs_view);
