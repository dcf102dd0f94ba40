/*
 * Runs the test scripts of the specification (.wast): text in, counts and a report out.
 *
 * A script is a list of commands; those named assert_… are counted. A module or
 * an action outside of an assertion that fails makes the whole script fail.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct wast_options {
    int spec; /* 10, 20 or 30 */
    /*
     * Runs the script twice. In the second run every call is stopped at random points, captured and
     * resumed in a new store. Results and fuel must be the same.
     */
    bool suspend;
    uint64_t seed;
    uint64_t fuel; /* limit of one call; 0 means 200,000,000 */
};

struct wast_result {
    uint32_t passed, total;
    bool broken;       /* a command outside of an assertion failed */
    uint32_t captures; /* with suspend: how often a store was captured and resumed */
    uint64_t fuel;     /* used by the whole script */
    uint8_t hash[32];  /* hash of the final state; equal on every CPU */
};

/*
 * Runs a script. Appends one line per failure, "name:line: …", to report, as long as there is room.
 */
void wast_run(const char *name, const char *src, size_t len, const struct wast_options *options,
              struct wast_result *ret, struct buf *report);
