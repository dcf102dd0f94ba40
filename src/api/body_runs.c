/* Change sets and runs. */
#include "api/body_fields.h"
#include "operator/operator.h"
#include "service/review/changesets.h"

static const char *const ship_actions[] = {"ship", "shipped", "undo", "undone", NULL};

static const struct field freeze_request[] = {
    {"path", FIELD_TEXT, AT(struct freeze_request, path),
     "a directory of the machine, absolute, or where a database was handed over (default /outbox)",
     .max = 4095},
    {"slice", FIELD_TEXT, AT(struct freeze_request, slice),
     "where what it is the work on was handed over (default: the same path)", .max = 4095},
};
const struct schema freeze_request_schema = SCHEMA("Freeze", struct freeze_request, freeze_request);

static const struct field changeset_view_fields[] = {
    {"id", SHOW_TEXT, AT(struct changeset_view, id), NULL, .required = true},
    {"owner", SHOW_TEXT, AT(struct changeset_view, owner), NULL, .required = true},
    {"machine", SHOW_TEXT, AT(struct changeset_view, machine), NULL, .required = true},
    {"path", SHOW_TEXT, AT(struct changeset_view, path), NULL, .required = true},
    {"machine_name", SHOW_TEXT, AT(struct changeset_view, machine_name),
     "as its owner called it then"},
    {"slice", SHOW_TEXT, AT(struct changeset_view, slice),
     "where what it is the work on was handed over", .required = true},
    {"grant", SHOW_TEXT, AT(struct changeset_view, grant), "that it is the work on"},
    {"kind", SHOW_TEXT, AT(struct changeset_view, kind),
     "of the grant: dir, repo, sqlite, postgres"},
    {"home", SHOW_TEXT, AT(struct changeset_view, home), "what it is on its owner's side"},
    {"ref", SHOW_TEXT, AT(struct changeset_view, ref), "repo: what was cloned"},
    {"base_sha256", SHOW_TEXT, AT(struct changeset_view, base_sha256),
     "sqlite: of the copy that was handed over"},
    {"revoked", SHOW_FLAG, AT(struct changeset_view, revoked),
     "its owner took the grant back since: it goes out only to where it is told", .required = true},
    {"sha256", SHOW_TEXT, AT(struct changeset_view, sha256), "of the archive", .required = true},
    {"tainted", SHOW_TEXT, AT(struct changeset_view, tainted),
     "the first source that is not trusted that its machine had read from"},
    {"image_files", SHOW_JSON, AT(struct changeset_view, image_files),
     "where nothing was lent: paths that are as the image of the machine has them"},
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

static const char *const answer_actions[] = {"accept", "decline", "cancel", NULL};

static const struct field run_start_request[] = {
    {"task", FIELD_TEXT, AT(struct operator_request, task), "what is to be done", .required = true,
     .max = 256 << 10},
    {"machine", FIELD_TEXT, AT(struct operator_request, machine),
     "id or name (default: one is made, with nothing lent to it)", .max = 120},
    {"model", FIELD_TEXT, AT(struct operator_request, model),
     "PROVIDER/MODEL (default: as configured); for a provider of carrel.conf tokens need the scope "
     "admin",
     .max = 200},
    {"script", FIELD_TEXT, AT(struct operator_request, script),
     "what the provider `rehearsal` plays", .max = 4 << 20},
    {"mode", FIELD_TEXT, AT(struct operator_request, mode),
     "free (default), plan-then-execute, action-selector, map or handles", .max = 40},
    {"menu", FIELD_TEXT, AT(struct operator_request, menu),
     "of the mode action-selector: the calls that may be made, as JSON", .max = 256 << 10},
    {"guard", FIELD_FLAG, AT(struct operator_request, guard),
     "guard its machine, as in MachineRequest"},
    {"keys", FIELD_MAP, AT(struct operator_request, keys),
     "environment variables of the provider; kept in memory for this run only; for its base URL "
     "tokens need the scope admin",
     .max = OPERATOR_KEYS_MAX},
    {"turns", FIELD_NUMBER, AT(struct operator_request, turns), "turns of the model (default 200)",
     .min = 1, .max = 5000},
    {"tokens", FIELD_NUMBER, AT(struct operator_request, tokens),
     "of all kinds (default: no limit)", .min = 1, .max = 1ull << 40},
    {"money_micro", FIELD_NUMBER, AT(struct operator_request, money),
     "millionths of the unit of the prices (default: no limit)", .min = 1, .max = 1ull << 50},
    {"timeout", FIELD_DURATION, AT(struct operator_request, timeout),
     "limit of wall-clock time, without waiting for approvals (default: unlimited)", .min = 1,
     .max = 30ull * 24 * 3600 * 1000},
    {"ask_deviations", FIELD_FLAG, AT(struct operator_request, asks),
     "of plan-then-execute: a call that is not in the plan waits for its owner's approval, and is "
     "not refused at once"},
    {"tries", FIELD_NUMBER, AT(struct operator_request, tries),
     "so many runs at once, on forks of the machine or on machines made for them: the best one's "
     "machine stays, tokens and money are of all together",
     .min = 1, .max = 8},
    {"check", FIELD_TEXT, AT(struct operator_request, check),
     "of tries: a command that exits with 0 where the work is good", .max = 64 << 10},
    {"check_files", FIELD_MAP, AT(struct operator_request, check_files),
     "of tries: files that the check needs, by absolute path, put there before it over whatever is "
     "there; 1 MiB together",
     .max = OPERATOR_FILES_MAX},
    {"machines", FIELD_TEXTS, AT(struct operator_request, machines),
     "of tries: these instead, one each; all but the best one's are removed, and all of them "
     "when it is cancelled",
     .max = 8},
};
const struct schema run_start_request_schema =
    SCHEMA("RunStart", struct operator_request, run_start_request);

static const struct field run_resume_request[] = {
    {"keys", FIELD_MAP, AT(struct run_resume_request, keys), "as when it was started",
     .max = OPERATOR_KEYS_MAX},
    {"comment", FIELD_TEXT, AT(struct run_resume_request, back.comment),
     "of a run that has ended: its work is returned, and this is its next message",
     .max = 64 << 10},
    {"key", FIELD_TEXT, AT(struct run_resume_request, back.key),
     "idempotency key of a comment: sent again, it is not given twice", .max = RUN_RETURN_KEY_MAX},
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
