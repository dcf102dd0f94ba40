/*
 * Waits for the work of one line of a recipe, and shows on stderr how long it takes and the last
 * line that its command wrote: in place on a terminal, else as a line every few seconds.
 */
#pragma once

#include <sys/types.h>

#include "cli/client.h"

enum { BUILD_WAIT_TAIL = 64 << 10 };

struct build_wait {
    struct client *client;
    const char *what; /* the line of the recipe, with its number */
    bool silent, terminal, shown;
    uint64_t started_ms, shown_ms, asked_ms;
    struct buf output;     /* end of the command's output */
    uint64_t output_bytes; /* size of all of it */
    char last[256];        /* last line of it that is not empty */
    char line[256];        /* line that is not complete */
    size_t line_len;
};

void build_wait_begin(struct build_wait *w, struct client *c, const char *what, bool silent);
/* Removes the line that is shown in place. */
void build_wait_end(struct build_wait *w);
/* Shows the end of the output of a command that failed. */
void build_wait_output(struct build_wait *w);

/* Notes output of the command. */
void build_wait_note(struct build_wait *w, const char *bytes, size_t n);
/* Shows the time again, if it is due. */
void build_wait_tick(struct build_wait *w);
/*
 * Waits for a process of this host. Meanwhile short requests tell the daemon that a client needs
 * it: a daemon that was started by a command exits when it is idle.
 */
void build_wait_process(struct build_wait *w, pid_t pid, int *ret_status);
