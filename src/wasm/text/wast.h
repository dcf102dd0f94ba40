/*
 * The specification's test scripts (.wast): text in, counts and a report out.
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
    /* Run twice; the second time every call is stopped at random points, captured and resumed in
       a new store. Results and fuel must be the same. */
    bool suspend;
    uint64_t seed;
    uint64_t fuel; /* of one call; 0 means 200,000,000 */
};

struct wast_result {
    uint32_t passed, total;
    bool broken;       /* something outside of an assertion failed */
    uint32_t captures; /* with suspend: how often a store was captured and resumed */
    uint64_t fuel;     /* spent by the whole script, and the hash of what it left behind: */
    uint8_t hash[32];  /* equal on every CPU */
};

/* One line a failure, "name:line: …", is appended to report, as long as there is room. */
void wast_run(const char *name, const char *src, size_t len, const struct wast_options *options,
              struct wast_result *ret, struct buf *report);
