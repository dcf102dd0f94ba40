/*
 * What a benchmark found: tables for people, JSON for programs.
 *
 * A report is a list of sections, each a table. A row is a distribution, a single figure, a bar
 * (a figure, its limit, and whether it was kept), or a thing that was skipped and why. The tables
 * are Markdown, padded so that they also read well in a terminal.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"
#include "stats.h"

struct report;

struct report *report_new(const char *name);
void report_free(struct report *r);

/* The facts of the host that every figure depends on. */
void report_host(struct report *r);

/* A fact about the run, such as the kernel's version: shown above the tables. */
void report_fact(struct report *r, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void report_section(struct report *r, const char *title);

/* Nanoseconds, shown in microseconds; `floor` (may be NULL) is what the ratio is to. */
void report_times(struct report *r, const char *name, struct samples *s, struct samples *floor);
/* NAN: there is none. */
void report_figure(struct report *r, const char *name, double value, const char *unit);
/* Bars of all sections are one table, the last. */
void report_bar(struct report *r, const char *name, double value, double limit, const char *unit);
void report_skip(struct report *r, const char *name, const char *why);

/* Something was measured and has no value: the benchmark itself is broken. Names it on stderr. */
bool report_is_whole(const struct report *r);

/* The tables on stdout and, where a path is given, in that file; the data as JSON in the other. */
int report_show(const struct report *r, const char *table, const char *json, struct err *err);
