/*
 * Tools that exist only in a run, because they need its model or its transcript: freeze, inspect,
 * map, spawn. The rows have the format of src/tools; the mode of the run decides which it offers.
 */
#pragma once

#include "tools/tool.h"

enum { ASIDE_ITEMS_MAX = 64, ASIDE_TEXT_MAX = 256 << 10, ASIDE_QUESTION_MAX = 4000 };

extern const struct tool own_tools[];
extern const size_t own_tool_count;

const struct tool *own_tool_find(const char *name); /* NULL: unknown */

struct inspect_input {
    const char *machine; /* always NULL: the call uses the run's machine */
    const char *handle, *question;
    const json_t *schema;
};

struct map_input {
    const char *machine; /* always NULL: the call uses the run's machine */
    struct texts items;
    const char *question;
    const json_t *schema;
};

struct spawn_input {
    const char *machine; /* always NULL: the call uses the run's machine */
    const char *task, *bring;
    struct given turns;
};

struct spawn_output {
    const char *run, *status, *summary, *brought;
    const char *evidence, *outputs, *open_issues; /* JSON arrays */
};

struct records_output {
    const char *records; /* JSON array */
    uint64_t fitting;
};

/* ---- aside.c: the act belongs to a run; the arg of its events is a struct acting ---- */
void tool_inspect(struct act *a);
void tool_map(struct act *a);
/* ---- spawn.c: as in aside.c ---- */
void tool_spawn(struct act *a);
