/*
 * Progress of a copy, shown if it takes more than a second: one line with a bar on a terminal, else
 * a line every few seconds.
 *
 * It writes to stderr only, because stdout may be the data.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what;
    uint64_t total, done; /* total 0: not known */
    uint64_t started_ms, shown_ms;
    bool silent, shown, terminal;
};

struct progress progress_begin(const char *what, uint64_t total, bool silent);
void progress_add(struct progress *p, uint64_t bytes);
void progress_end(struct progress *p);
