/*
 * Output of lists: cells of a table for people, JSON for programs.
 *
 * Cells are made safe for a terminal (cli/safe.h).
 */
#pragma once

#include <jansson.h>

/*
 * Flag of json_dumps() for the command line: numbers such as 0.1 keep their decimal form. Without
 * it they get 17 digits, which show the error of the binary form.
 */
#define TABLE_REALS JSON_REAL_PRECISION(15)

/* Prints an object on one line. A list is printed as an object with the list as its member. */
void print_json(const json_t *value);

/* Prints `member` of each row, a text or a number, one per line: for -q. */
void print_ids(const json_t *rows, const char *member);
/* Finds the row whose text `member` is `id`; NULL: none. */
const json_t *table_find(const json_t *rows, const char *member, const char *id);

/* Prints one cell, safe for a terminal, then blanks up to `width` and two more. */
void table_cell(const char *text, int width);

/* Writes the age since an RFC 3339 time, such as "12s", "5m", "3h" or "2d". */
void table_age(const char *since, char ret[16]);
enum { TABLE_LEFT_SIZE = 48, TABLE_LEFT_WIDTH = 8 };
/* Writes the time until `until_ms` (since 1970), such as "1h 59m"; "-" if that is 0. */
void table_left(long long until_ms, char ret[TABLE_LEFT_SIZE]);
void table_bytes(long long n, char ret[16]); /* writes a size such as "1.5G" */
