/*
 * Text from elsewhere on somebody's terminal: names and contents of files that others wrote.
 *
 * Control characters could repaint what was shown, characters that turn the direction of writing
 * could swap it, and those without ink could hide in it (base/visible.h): all are shown as \xNN,
 * and so is what is no UTF-8.
 *
 * The build includes this first in every file of src/cli, where printf(), fprintf(), puts() and
 * fputs() are those below: nobody can forget it. What must go out as it is, a command's output or a
 * file, is written with fwrite() or write_all().
 */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* A name is one line whatever it holds; a text keeps its line breaks and spaces. */
void safe_name(FILE *to, const char *name);
char *safe_copy(const char *name); /* the same as a text of its own, to be freed */
void safe_text(FILE *to, const char *text, size_t len);
/* JSON is data of other programs: what a terminal must not get is written as \\uNNNN. */
void safe_json(FILE *to, const char *text, size_t len);
void safe_json_line(const char *text); /* to stdout */

/* What the format says goes out as it is; every text that it is given is a name. */
int safe_printf(FILE *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A text that is not the program's own keeps only its line breaks and tabs. */
int safe_puts(FILE *to, const char *text, bool is_own, const char *end);

#define printf(...) safe_printf(stdout, __VA_ARGS__)
#define fprintf(...) safe_printf(__VA_ARGS__)
#define puts(text) safe_puts(stdout, text, __builtin_constant_p(text), "\n")
#define fputs(text, to) safe_puts(to, text, __builtin_constant_p(text), "")
