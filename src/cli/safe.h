/*
 * Prints untrusted text, such as file names and contents of a machine, safely on a terminal.
 *
 * Control characters, characters that change the writing direction and invisible characters
 * (base/text/visible.h) are printed as \xNN, and so are bytes that are not UTF-8.
 *
 * The build includes this header first in every file of src/cli. There it replaces printf(),
 * fprintf(), puts() and fputs() by the functions below, so that nobody can forget them. Output that
 * must not change, such as a command's output or a file, is written with fwrite() or write_all().
 */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* A name is printed as one line; a text keeps its line breaks and spaces. */
void safe_name(FILE *to, const char *name);
char *safe_copy(const char *name); /* returns the safe text; the caller frees it */
void safe_text(FILE *to, const char *text, size_t len);
/* JSON stays valid: unsafe characters are written as \\uNNNN. */
void safe_json(FILE *to, const char *text, size_t len);
void safe_json_line(const char *text); /* to stdout */

/* Prints the format unchanged, and every %s argument as safe_name() does. */
int safe_printf(FILE *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints text and `end`. Of control characters, only line breaks and tabs stay unchanged. */
int safe_puts(FILE *to, const char *text, bool is_own, const char *end);

#define printf(...) safe_printf(stdout, __VA_ARGS__)
#define fprintf(...) safe_printf(__VA_ARGS__)
#define puts(text) safe_puts(stdout, text, __builtin_constant_p(text), "\n")
#define fputs(text, to) safe_puts(to, text, __builtin_constant_p(text), "")
