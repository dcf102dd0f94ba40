/*
 * Output of lists: cells of a table for people, JSON for programs.
 *
 * Cells are made safe for a terminal (cli/safe.h).
 */
#pragma once

#include <jansson.h>

void print_json(const json_t *value);

/* One cell, made safe to show, then blanks up to `width` and two more. */
void table_cell(const char *text, int width);

/* "12s", "5m", "3h", "2d" since an RFC 3339 time. */
void table_age(const char *since, char ret[16]);
void table_bytes(long long n, char ret[16]); /* "1.5G" */
