/* Opens a URL in the user's browser: a program of $BROWSER, or xdg-open. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct browser {
    char name[64]; /* of the program, without its folder */
    pid_t pid;     /* 0: it has ended */
};

/* True if a browser of this user can show a page on this host: there is a display, and the user is
 * not root in place of somebody else (sudo). */
bool browser_may_show(void);

/* Returns false if no program could be started. */
bool browser_open(struct browser *b, const char *url);

/* Returns the exit status of a program that failed since the last call, otherwise 0. */
int browser_failed(struct browser *b);
