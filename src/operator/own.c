#include "operator/own.h"

#include <string.h>

#define AT(type, member) offsetof(struct type, member)

/* ---- freeze: answered by next.c, because the fixed calls are part of struct run ---- */

struct freeze_input {
    const json_t *calls;
};
static const struct field freeze_input[] = {
    {"calls", FIELD_JSON, AT(freeze_input, calls),
     "a list of {\"tool\":NAME,\"arguments\":{...}}, in order; a value, or an element of argv, may "
     "be {\"hole\":SCHEMA}",
     .required = true},
};
static const struct schema freeze_input_schema =
    SCHEMA("freeze_input", struct freeze_input, freeze_input);

struct freeze_output {
    const char *status, *sha256;
};
static const struct field freeze_output[] = {
    {"status", SHOW_TEXT, AT(freeze_output, status), "frozen", .required = true},
    {"sha256", SHOW_TEXT, AT(freeze_output, sha256), "of the calls", .required = true},
};
static const struct schema freeze_output_schema =
    SCHEMA("freeze_output", struct freeze_output, freeze_output);

/* ---- inspect, map ---- */

#define QUESTION_FIELD(type)                                                   \
    {                                                                          \
        "question", FIELD_TEXT, AT(type, question), "what is to be found out", \
            .required = true, .max = ASIDE_QUESTION_MAX                        \
    }
#define SCHEMA_FIELD(type)                                                                        \
    {                                                                                             \
        "schema", FIELD_JSON, AT(type, schema),                                                   \
            "of the answer: an object whose properties are a string with an enum or a maxLength " \
            "of up to 200, an integer or a number with minimum and maximum, or a boolean",        \
            .required = true                                                                      \
    }

static const struct field inspect_input[] = {
    {"handle", FIELD_TEXT, AT(inspect_input, handle), "such as $h3.0", .required = true,
     .max = 120},
    QUESTION_FIELD(inspect_input),
    SCHEMA_FIELD(inspect_input),
};
static const struct schema inspect_input_schema =
    SCHEMA("inspect_input", struct inspect_input, inspect_input);

static const struct field map_input[] = {
    {"items", FIELD_TEXTS, AT(map_input, items),
     "what is read, each apart: absolute paths of files, or handles", .required = true,
     .max = ASIDE_ITEMS_MAX},
    QUESTION_FIELD(map_input),
    SCHEMA_FIELD(map_input),
};
static const struct schema map_input_schema = SCHEMA("map_input", struct map_input, map_input);

struct record_row {
    const char *item, *record, *error;
};
static const struct field record_row[] = {
    {"item", SHOW_TEXT, AT(record_row, item), NULL, .required = true},
    {"record", SHOW_JSON, AT(record_row, record), "of the schema"},
    {"error", SHOW_TEXT, AT(record_row, error), "why there is none"},
};
static const struct schema record_row_schema = SCHEMA("record_row", struct record_row, record_row);

static const struct field records_output[] = {
    {"records", SHOW_JSON, AT(records_output, records), "one an item, in order", .required = true,
     .sub = &record_row_schema},
    {"fitting", SHOW_NUMBER, AT(records_output, fitting), "that fit the schema", .required = true},
};
static const struct schema records_output_schema =
    SCHEMA("records_output", struct records_output, records_output);

/* ---- spawn ---- */

static const struct field spawn_input[] = {
    {"task", FIELD_TEXT, AT(spawn_input, task), "all that it needs to know: it sees nothing else",
     .required = true, .max = 64 << 10},
    {"turns", FIELD_NUMBER, AT(spawn_input, turns),
     "turns that it may have of yours (default 50, or what is left)", .min = 1, .max = 1000},
    {"bring", FIELD_TEXT, AT(spawn_input, bring),
     "a directory, absolute: what is in it there afterwards is put into yours", .max = 4095},
};
static const struct schema spawn_input_schema =
    SCHEMA("spawn_input", struct spawn_input, spawn_input);

static const struct field spawn_output[] = {
    {"run", SHOW_TEXT, AT(spawn_output, run), NULL, .required = true},
    {"status", SHOW_TEXT, AT(spawn_output, status), "done partial blocked budget ...",
     .required = true},
    {"summary", SHOW_TEXT, AT(spawn_output, summary), NULL},
    {"evidence", SHOW_JSON, AT(spawn_output, evidence), "texts", .required = true},
    {"outputs", SHOW_JSON, AT(spawn_output, outputs), "texts", .required = true},
    {"open_issues", SHOW_JSON, AT(spawn_output, open_issues), "texts", .required = true},
    {"brought", SHOW_TEXT, AT(spawn_output, brought), "all of it, or why not"},
};
static const struct schema spawn_output_schema =
    SCHEMA("spawn_output", struct spawn_output, spawn_output);

/* ---- the tools ---- */

const struct tool own_tools[] = {
    {"freeze", "Fix the calls of this run",
     "Fix, once and before anything was read, the calls that this run will make: each a tool and "
     "its arguments. A value that is not known yet is a hole with a bounded schema: a string with "
     "an enum or a maxLength of up to 200, an integer or a number with minimum and maximum, or a "
     "boolean. A hole is a whole argument or a whole word of argv, never a part of cmd; most need "
     "an enum. Afterwards only these calls are made, in this order.",
     &freeze_input_schema, &freeze_output_schema, TOOL_IDEMPOTENT, TOOL_KEPT, NULL, NULL},
    {"inspect", "Ask about what a handle stands for",
     "Let the text behind a handle be read by a model call of its own that has no tools, and get "
     "the answer as one record of your schema. The text itself is not shown to you: in the record "
     "a string without an enum is a new handle. An answer that does not fit is left out.",
     &inspect_input_schema, &records_output_schema,
     TOOL_MACHINE | TOOL_READ_ONLY | TOOL_IDEMPOTENT | TOOL_OPEN_WORLD, TOOL_REPEAT, tool_inspect,
     NULL},
    {"map", "Read many texts, each apart",
     "Let each of several texts (files of the machine, or handles) be read by a model call of its "
     "own that has no tools and sees nothing else, and get one record of your schema for each. Use "
     "it for many documents, and for texts of strangers: what they say reaches you only in the "
     "form that you asked for. An answer that does not fit is left out. Where results are handles, "
     "a string without an enum is a new handle.",
     &map_input_schema, &records_output_schema,
     TOOL_MACHINE | TOOL_READ_ONLY | TOOL_IDEMPOTENT | TOOL_OPEN_WORLD, TOOL_REPEAT, tool_map,
     NULL},
    {"spawn", "Give a part of the task to a sub-agent",
     "Let a sub-agent carry out a part of the task on a fork of your machine, as it is now, and "
     "get its report. It sees the task that you write and nothing of this conversation; what it "
     "spends is yours. Its machine is gone afterwards: name a directory in bring to get what it "
     "made there. Use it for parts that would fill your own view, and for attempts that may fail. "
     "What you were lent beyond your own disk is not in the fork.",
     &spawn_input_schema, &spawn_output_schema, TOOL_MACHINE | TOOL_DESTRUCTIVE | TOOL_OPEN_WORLD,
     TOOL_KEPT, tool_spawn, NULL},
};
const size_t own_tool_count = sizeof(own_tools) / sizeof(*own_tools);

const struct tool *own_tool_find(const char *name) {
    for (size_t i = 0; i < own_tool_count; i++)
        if (strcmp(own_tools[i].name, name) == 0)
            return &own_tools[i];
    return NULL;
}
