/*
 * Detects a run that makes no progress, from its calls and results only. Pure.
 *
 * A pattern counts only calls since the last report (stuck_told()), so each detection is new and
 * the run can react more strongly each time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum stuck_limits {
    STUCK_SAME = 3,      /* times in a row that the same call gives the same result */
    STUCK_FAILING = 3,   /* times in a row that the same call fails */
    STUCK_ALTERNATE = 6, /* calls that alternate: A, B, A, B, A, B */
    STUCK_NOTHING = 15,  /* consecutive calls whose result was seen before */
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
    bool failed, old; /* old: the same call had the same result before */
};

struct stuck {
    struct stuck_row rows[STUCK_KEPT]; /* ring buffer of the newest rows, one per call */
    size_t count;                      /* rows ever added */
    size_t since;                      /* rows before this one were reported */
};

void stuck_add(struct stuck *s, const char *tool, const char *arguments, const char *result,
               size_t n, bool failed);
enum stuck_pattern stuck_look(const struct stuck *s);
/* Marks the pattern as reported: only later rows count from now on. */
void stuck_told(struct stuck *s);

/* Describes the pattern to the model. */
const char *stuck_says(enum stuck_pattern pattern);
