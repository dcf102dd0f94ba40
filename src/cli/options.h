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
    const char *value; /* what to call its value in --help; NULL for a flag */
    enum option_kind kind;
    size_t offset;
    const char *help;
};

/* *ret_next is the index of the first argument that is not an option, after "--" if given. */
int options_parse(const struct option_row *rows, int argc, char **argv, void *into, int *ret_next,
                  struct err *err);
/* Reads arguments with options before, between and after them; returns their number. */
int options_words(const struct option_row *rows, int argc, char **argv, void *into, char **words,
                  int max, struct err *err);
/* The option whose value must follow as the next argument; NULL: no value is missing. */
const struct option_row *options_awaiting(const struct option_row *rows, const char *word);
/* The option of "--name=..." that takes a value; NULL: there is no such option. */
const struct option_row *options_given(const struct option_row *rows, const char *word);
/* Was it given? A list: at least once. */
bool option_is_given(const struct option_row *row, const void *into);
/* Sets the error for an option that is not in the table, with a suggestion; returns -1. */
int options_unknown(const struct option_row *rows, const char *word, struct err *err);
void options_print(const struct option_row *rows);
