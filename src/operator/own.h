/*
 * Tools that only a run has, because they need its model or its transcript: freeze, inspect, map,
 * spawn.
 *
 * Rows of the same kind as src/tools; which of them a run offers is its mode's affair.
 */
#pragma once

#include "tools/tool.h"

enum { ASIDE_ITEMS_MAX = 64, ASIDE_TEXT_MAX = 256 << 10, ASIDE_QUESTION_MAX = 4000 };

extern const struct tool own_tools[];
extern const size_t own_tool_count;

const struct tool *own_tool_find(const char *name); /* NULL: there is none */

struct inspect_input {
    const char *machine; /* never given */
    const char *handle, *question;
    const json_t *schema;
};

struct map_input {
    const char *machine; /* never given */
    struct texts items;
    const char *question;
    const json_t *schema;
};

struct spawn_input {
    const char *machine; /* never given */
    const char *task, *bring;
    struct given steps;
};

struct spawn_output {
    const char *run, *status, *summary, *brought;
    const char *evidence, *outputs, *open_issues; /* JSON arrays */
};

struct records_output {
    const char *records; /* JSON array */
    uint64_t fitting;
};

/* ---- aside.c: the act is one of a run, whose call (operator/inner.h) is its events' arg ---- */
void tool_inspect(struct act *a);
void tool_map(struct act *a);
/* ---- spawn.c, likewise ---- */
void tool_spawn(struct act *a);
