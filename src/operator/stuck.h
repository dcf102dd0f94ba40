/*
 * Does it get anywhere? Told from the calls and their results alone, without a model. Pure.
 *
 * A pattern counts only within what happened since the last time one was found, so each finding is
 * a new one and the run can answer with more than it did before.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum stuck_limits {
    STUCK_SAME = 3,      /* the same call with the same result, in a row */
    STUCK_FAILING = 3,   /* the same call failing, in a row */
    STUCK_ALTERNATE = 6, /* A, B, A, B, A, B */
    STUCK_NOTHING = 15,  /* calls in a row that each had come to the same before */
    STUCK_KEPT = 512,
};

enum stuck_pattern {
    STUCK_NOT,
    STUCK_REPEATS,
    STUCK_FAILS,
    STUCK_ALTERNATES,
    STUCK_NO_EFFECT,
};

struct stuck_row {
    uint64_t call, result;
    bool failed, old; /* old: this very pair was there before */
};

struct stuck {
    struct stuck_row rows[STUCK_KEPT]; /* the newest, round and round */
    size_t count;                      /* of all */
    size_t since;                      /* rows before this one were told of */
};

void stuck_add(struct stuck *s, const char *tool, const char *arguments, const char *result,
               size_t n, bool failed);
enum stuck_pattern stuck_look(const struct stuck *s);
/* It was told of: from now on only what comes counts. */
void stuck_told(struct stuck *s);

/* A sentence for the model. */
const char *stuck_says(enum stuck_pattern pattern);
