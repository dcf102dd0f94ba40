/*
 * Options from a table: parsing, `--help`, and the error for a wrong option.
 *
 * A row gives the option, the place of its value in the command's struct, and its help text.
 * Parsing stops at "--" or at the first argument that is not an option.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum option_kind {
    OPTION_FLAG,     /* bool */
    OPTION_TEXT,     /* const char * */
    OPTION_LIST,     /* struct option_list */
    OPTION_SIZE,     /* uint64_t bytes */
    OPTION_MILLI,    /* uint64_t thousandths */
    OPTION_NUMBER,   /* uint64_t, at least 1 */
    OPTION_DURATION, /* uint64_t milliseconds */
};

enum { OPTION_LIST_MAX = 64 };

struct option_list {
    const char *items[OPTION_LIST_MAX];
    size_t count;
};

struct option_row {
    char letter; /* 0: none */
    const char *name;
    const char *value; /* name of the value in --help, such as SIZE; NULL for a flag */
    enum option_kind kind;
    size_t offset;
    const char *help;
};

/* Parses options. *ret_next is the index of the first argument that is not an option or "--". */
int options_parse(const struct option_row *rows, int argc, char **argv, void *into, int *ret_next,
                  struct err *err);
/*
 * Reads options before, between and after the arguments. The arguments stay in argv, from argv[1]
 * on, and NULL follows the last one; returns their number. After "--" all are arguments.
 */
int options_take(const struct option_row *rows, int argc, char **argv, void *into, struct err *err);
/* Does the same, copies the arguments to `words`, and refuses more than `max`. */
int options_words(const struct option_row *rows, int argc, char **argv, void *into, char **words,
                  int max, struct err *err);
/* Returns the option of `word` if its value must be the next argument, else NULL. */
const struct option_row *options_awaiting(const struct option_row *rows, const char *word);
/* Returns the option of "--name=..."; NULL: no option of that name takes a value. */
const struct option_row *options_given(const struct option_row *rows, const char *word);
/* True if the option was given; a list: at least once. */
bool option_is_given(const struct option_row *row, const void *into);
/* Sets the error for an option that is not in the table, with a suggestion; returns -1. */
int options_unknown(const struct option_row *rows, const char *word, struct err *err);
void options_print(const struct option_row *rows);
