#include "operator/own.h"

#include <string.h>

#define AT(type, member) offsetof(struct type, member)

/* ---- freeze: answered by next.c, because the fixed calls are part of struct run ---- */

struct freeze_input {
    const json_t *calls;
};
static const struct field freeze_input[] = {
    {"calls", FIELD_JSON, AT(freeze_input, calls),
     "calls in order, each {\"tool\":NAME,\"arguments\":{...}}; an argument, or an element of "
     "argv, may be {\"hole\":SCHEMA}",
     .required = true},
};
static const struct schema freeze_input_schema =
    SCHEMA("freeze_input", struct freeze_input, freeze_input);

struct freeze_output {
    const char *status, *sha256;
};
static const struct field freeze_output[] = {
    {"status", SHOW_TEXT, AT(freeze_output, status), "always frozen: the calls are fixed",
     .required = true},
    {"sha256", SHOW_TEXT, AT(freeze_output, sha256), "SHA-256 of the calls", .required = true},
};
static const struct schema freeze_output_schema =
    SCHEMA("freeze_output", struct freeze_output, freeze_output);

/* ---- inspect, map ---- */

#define QUESTION_FIELD(type)                                                            \
    {                                                                                   \
        "question", FIELD_TEXT, AT(type, question), "question to answer from the text", \
            .required = true, .max = ASIDE_QUESTION_MAX                                 \
    }
#define SCHEMA_FIELD(type)                                                                  \
    {                                                                                       \
        "schema", FIELD_JSON, AT(type, schema),                                             \
            "JSON Schema of the answer: an object; each property is a string with enum or " \
            "maxLength (at most 200), an integer or number with minimum and maximum, or a " \
            "boolean",                                                                      \
            .required = true                                                                \
    }

static const struct field inspect_input[] = {
    {"handle", FIELD_TEXT, AT(inspect_input, handle), "handle of the text, such as $h3.0",
     .required = true, .max = 120},
    QUESTION_FIELD(inspect_input),
    SCHEMA_FIELD(inspect_input),
};
static const struct schema inspect_input_schema =
    SCHEMA("inspect_input", struct inspect_input, inspect_input);

static const struct field map_input[] = {
    {"items", FIELD_TEXTS, AT(map_input, items),
     "texts to read: absolute paths of files in the machine, or handles", .required = true,
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
    {"record", SHOW_JSON, AT(record_row, record), "the answer, an object that matches the schema"},
    {"error", SHOW_TEXT, AT(record_row, error), "why the item has no record"},
};
static const struct schema record_row_schema = SCHEMA("record_row", struct record_row, record_row);

static const struct field records_output[] = {
    {"records", SHOW_JSON, AT(records_output, records), "one record per item, in order",
     .required = true, .sub = &record_row_schema},
    {"fitting", SHOW_NUMBER, AT(records_output, fitting), "number of records that match the schema",
     .required = true},
};
static const struct schema records_output_schema =
    SCHEMA("records_output", struct records_output, records_output);

/* ---- spawn ---- */

static const struct field spawn_input[] = {
    {"task", FIELD_TEXT, AT(spawn_input, task),
     "the complete task: the sub-agent sees nothing else", .required = true, .max = 64 << 10},
    {"turns", FIELD_NUMBER, AT(spawn_input, turns),
     "maximum turns, taken from your budget (default 50, or what is left)", .min = 1, .max = 1000},
    {"bring", FIELD_TEXT, AT(spawn_input, bring),
     "absolute path of a directory; its content is copied from the sub-agent's machine to yours at "
     "the end",
     .max = 4095},
};
static const struct schema spawn_input_schema =
    SCHEMA("spawn_input", struct spawn_input, spawn_input);

static const struct field spawn_output[] = {
    {"run", SHOW_TEXT, AT(spawn_output, run), NULL, .required = true},
    {"status", SHOW_TEXT, AT(spawn_output, status), "one of done, partial, blocked, budget ...",
     .required = true},
    {"summary", SHOW_TEXT, AT(spawn_output, summary), NULL},
    {"evidence", SHOW_JSON, AT(spawn_output, evidence), "list of texts", .required = true},
    {"outputs", SHOW_JSON, AT(spawn_output, outputs), "list of texts", .required = true},
    {"open_issues", SHOW_JSON, AT(spawn_output, open_issues), "list of texts", .required = true},
    {"brought", SHOW_TEXT, AT(spawn_output, brought),
     "`all of it`, or why the directory could not be copied"},
};
static const struct schema spawn_output_schema =
    SCHEMA("spawn_output", struct spawn_output, spawn_output);

/* ---- the tools ---- */

const struct tool own_tools[] = {
    {"freeze", "Fix the calls of this run",
     "Fix the calls of this run, once, before any data is read. Each call is a tool and its "
     "arguments. A value that is not known yet is a hole with a limited schema: a string with enum "
     "or maxLength (at most 200), an integer or number with minimum and maximum, or a boolean. A "
     "hole replaces a complete argument or a complete element of argv, never a part of cmd; most "
     "holes need an enum. After freeze only these calls are allowed, in this order.",
     &freeze_input_schema, &freeze_output_schema, TOOL_IDEMPOTENT, TOOL_KEPT, NULL, NULL},
    {"inspect", "Ask about the text of a handle",
     "Ask a question about the text behind a handle. A separate model call without tools reads the "
     "text and answers with one record of your schema. You do not see the text: a string in the "
     "record that has no enum is a new handle. An answer that does not match the schema gives an "
     "error instead of a record.",
     &inspect_input_schema, &records_output_schema,
     TOOL_MACHINE | TOOL_READ_ONLY | TOOL_IDEMPOTENT | TOOL_OPEN_WORLD, TOOL_REPEAT, tool_inspect,
     NULL},
    {"map", "Ask one question about many texts",
     "Ask the same question about several texts (files of the machine, or handles). A separate "
     "model call without tools reads each text and answers with one record of your schema. Use it "
     "for many documents and for untrusted text: their content reaches you only in the form of "
     "your schema. An answer that does not match the schema gives an error instead of a record. In "
     "runs whose results "
     "are handles, a string without an enum is a new handle.",
     &map_input_schema, &records_output_schema,
     TOOL_MACHINE | TOOL_READ_ONLY | TOOL_IDEMPOTENT | TOOL_OPEN_WORLD, TOOL_REPEAT, tool_map,
     NULL},
    {"spawn", "Give a part of the task to a sub-agent",
     "Start a sub-agent for a part of the task, on a copy of your machine as it is now, and get "
     "its report. It sees only the task that you write, not this conversation. Its turns, tokens "
     "and cost count against your budget. Its machine is deleted afterwards; bring copies one "
     "directory back. The copy does not contain what the owner granted, such as directories. Use "
     "it for parts that would fill your context, and for attempts that may fail.",
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
