/*
 * Counts of tool calls, by the name of the tool: of a run, of a machine, and of the daemon.
 *
 * The counts of machines and of the daemon start at 0 with the daemon; those of a run are part of
 * its report.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/jot.h"

struct service;

/* A model can call tools that do not exist, so the number of names is limited. */
enum { TOOL_COUNTS_MAX = 48, TOOL_NAME_SIZE = 32 };

struct tool_count {
    char name[TOOL_NAME_SIZE];
    uint64_t calls, failed;
    uint64_t fallbacks; /* calls that did not work in the usual way, such as in a new machine */
    uint64_t wall_ms;   /* from the start of each call to its end, with its waits */
};

/* Zero-initialised; tool_counts_done() frees it. */
struct tool_counts {
    struct tool_count *v;
    size_t count;
};

/* Adds the counts of `more`. Names beyond the limit are counted as "other". */
void tool_counts_add(struct tool_counts *c, const struct tool_count *more);
/* Writes an array with one object for each tool, in the order of the first calls. */
void tool_counts_put(const struct tool_counts *c, struct jot *j, const char *member);
void tool_counts_done(struct tool_counts *c);

/* Counts one call. machine: its id, or "" for a call without one. */
void service_tool_called(struct service *s, const char *machine, const struct tool_count *one);
/* The counts of the daemon. */
const struct tool_counts *service_tool_counts(const struct service *s);
