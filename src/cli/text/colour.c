#include "cli/text/colour.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/safe.h"

bool colour_is_on(void) {
    static bool known, on;
    if (!known) {
        const char *off = getenv("NO_COLOR"), *term = getenv("TERM");
        on = isatty(STDOUT_FILENO) && (!off || !*off) && term && *term && strcmp(term, "dumb") != 0;
        known = true;
    }
    return on;
}

void colour_begin(enum colour c) {
    if (colour_is_on())
        printf("\033[%dm", (int)c);
}

void colour_end(void) {
    if (colour_is_on())
        printf("\033[0m");
}

void colour_heading(const char *line) {
    colour_begin(COLOUR_BOLD);
    printf("%s", line);
    colour_end();
    putchar('\n');
}

enum colour colour_of_state(const char *state) {
    return strcmp(state, "running") == 0   ? COLOUR_GREEN
           : strncmp(state, "end", 3) == 0 ? COLOUR_RED
                                           : COLOUR_YELLOW;
}

void colour_diff(const char *text) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        int c = *text == '+'   ? COLOUR_GREEN
                : *text == '-' ? COLOUR_RED
                : *text == '@' ? COLOUR_CYAN
                               : 0;
        if (c)
            colour_begin((enum colour)c);
        safe_text(stdout, text, n);
        if (c)
            colour_end();
        text += n;
        if (*text == '\n')
            putchar(*text++);
    }
}
