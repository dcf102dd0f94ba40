/*
 * Output of lists: cells of a table for people, JSON for programs.
 *
 * Cells are made safe for a terminal (cli/safe.h).
 */
#pragma once

#include <jansson.h>

void print_json(const json_t *value);

/* Prints `member` of each row, a text or a number, one per line: for -q. */
void print_ids(const json_t *rows, const char *member);
/* The row whose text `member` is `id`; NULL: there is none. */
const json_t *table_find(const json_t *rows, const char *member, const char *id);

/* One cell, made safe to show, then blanks up to `width` and two more. */
void table_cell(const char *text, int width);

/* "12s", "5m", "3h", "2d" since an RFC 3339 time. */
void table_age(const char *since, char ret[16]);
void table_bytes(long long n, char ret[16]); /* "1.5G" */
