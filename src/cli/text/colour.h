/*
 * Colours for people who read standard output on a terminal.
 *
 * Colours are off in a pipe or a file, with TERM=dumb, or if NO_COLOR is set and not empty.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum colour {
    COLOUR_BOLD = 1,
    COLOUR_RED = 31,
    COLOUR_GREEN = 32,
    COLOUR_YELLOW = 33,
    COLOUR_CYAN = 36
};

/* Whether standard output is a terminal that shows colours. The first answer is kept, also when a
 * pager starts later. */
bool colour_is_on(void);
void colour_begin(enum colour c); /* colours the output until colour_end(), if colours are on */
void colour_end(void);

/* Prints a line of headings in bold. */
void colour_heading(const char *line);
/* Returns the colour of a machine's state: green if it runs, red if it ended, else yellow. */
enum colour colour_of_state(const char *state);
/* Prints a unified diff with colours for added lines, removed lines and places. The text is not
 * trusted. */
void colour_diff(const char *text);
