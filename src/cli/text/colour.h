/*
 * Colours for people who read standard output on a terminal.
 *
 * There are none in a pipe or a file, with TERM=dumb, or if NO_COLOR is set and not empty.
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

/* Is standard output a terminal that shows colours? The first answer stays, also behind a pager. */
bool colour_is_on(void);
void colour_begin(enum colour c); /* nothing if there are none; ends with colour_end() */
void colour_end(void);

/* A line of headings, in bold. */
void colour_heading(const char *line);
/* A machine's state: green if it runs, red if it ended, yellow otherwise. */
enum colour colour_of_state(const char *state);
/* A unified diff: what was added, removed and where. The text comes from elsewhere. */
void colour_diff(const char *text);
