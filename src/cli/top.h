/*
 * The table of `carrel top`: resource use of each machine, from two samples of its counters.
 *
 * A row is one JSON object: id, name, state, created and, where known, cpu_percent (of one CPU),
 * mem_bytes, mem_limit_bytes, disk_bytes, pids and command. Cells are made safe for a terminal
 * here, because names and commands are untrusted.
 */
#pragma once

#include "cli/client.h"

enum top_order { TOP_CPU, TOP_MEM, TOP_DISK, TOP_AGE, TOP_NAME, TOP_ORDERS };

extern const char *const top_order_names[TOP_ORDERS];
int top_order_named(const char *name, enum top_order *ret, struct err *err);

enum { TOP_COLUMNS = 7, TOP_FIRST_MS = 300 };

struct top_column {
    const char *title;
    int width; /* 0: the rest of the line */
    bool right;
};
extern const struct top_column top_columns[TOP_COLUMNS];

struct top {
    struct client client;
    json_t **rows;
    size_t count;
    json_t *before; /* last sample: for each id the used cpu time, and when */
    json_t *store;  /* note of the daemon about a full disk; or NULL */
};

/* Takes a sample of all machines; the table is empty if no daemon runs. It may be called again
 * after a failure. */
int top_look(struct top *t, struct err *err);
void top_sort(struct top *t, enum top_order order);
/* Asks for the last command of these rows, once per sample. */
int top_commands(struct top *t, size_t from, size_t count, struct err *err);
void top_done(struct top *t);

char *top_cell(const json_t *row, size_t column); /* the caller frees it */
char *top_summary(const struct top *t);           /* one line; the caller frees it */
